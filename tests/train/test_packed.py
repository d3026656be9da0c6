"""Training, scoring and resuming from packed data is training, scoring and resuming from memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from foretell.batches.batch import length_buckets
from foretell.batches.order import buffered, epoch_order, fitting_order
from foretell.data import Dataset, EventData, load, save_dataset
from foretell.data.dataset import Card
from foretell.data.packed import writer
from foretell.data.packed.packing import pack
from foretell.evaluate.likelihood import score_events
from foretell.evaluate.record import digest_of
from foretell.train.config import make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.likelihood_task import mean_log_likelihood
from foretell.train.run import RunFolder
from tests.train.small import exciting, options, same_tensors, small_model
from tests.train.test_resume import StopAfter, same_run, without_seconds

TRAIN, DEV = exciting(40, 0), exciting(8, 1)


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Dataset:
    """TRAIN and DEV in a packed folder, TRAIN in shards of some six sequences."""
    folder = tmp_path_factory.mktemp("data")
    save_dataset(Dataset(TRAIN, DEV, None, TRAIN.vocabulary, Card("exciting")), folder / "plain")
    cuts, writer.shard_cuts = writer.shard_cuts, lambda offsets: whole_cuts(offsets, 60)
    whole_cuts = cuts
    try:
        pack(folder / "plain", folder / "packed")
    finally:
        writer.shard_cuts = cuts
    found = load(folder / "packed")
    assert len(found.train.columns.shards.starts) > 5
    return found


def run_of(path: Path) -> RunFolder:
    return RunFolder.create(path, make_config({}))


def test_batches_of_data_that_the_buffer_holds_are_those_of_memory(packed):
    one = epoch_order(packed.train, 4, np.random.default_rng(3))
    other = length_buckets(TRAIN.lengths, 4, np.random.default_rng(3))
    assert len(one) == len(other)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_sequence_is_in_one_batch_and_no_group_is_larger_than_the_buffer(packed):
    data, most = packed.train, 150
    groups = buffered(data, most, np.random.default_rng(1))
    assert len(groups) > 2 and all(data.lengths[group].sum() <= most for group in groups)
    for order in (epoch_order(data, 4, np.random.default_rng(1), most), fitting_order(data, 100, most)):
        assert sorted(np.concatenate(list(order)).tolist()) == list(range(len(data)))
        assert len(order.ends) == len(groups)


def test_batches_lie_inside_groups_and_pages_are_let_go_between_them(packed, monkeypatch):
    released = []
    shards = packed.train.columns.shards
    monkeypatch.setitem(shards.__dict__, "release", lambda: released.append(len(seen)))
    seen, order = [], epoch_order(packed.train, 4, np.random.default_rng(1), 150)
    for batch in order:
        seen.append(batch)
    assert set(released) == order.ends
    groups = buffered(packed.train, 150, np.random.default_rng(1))
    for batch in seen:
        assert sum(set(batch.tolist()) <= set(group.tolist()) for group in groups) == 1


def test_epochs_differ_and_a_seed_gives_the_same(packed):
    first, again, second = (epoch_order(packed.train, 4, np.random.default_rng([0, n]), 150) for n in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert {tuple(one) for one in first} != {tuple(one) for one in second}


def test_training_from_packed_data_is_training_from_memory(packed, tmp_path):
    expected = fit(small_model(TRAIN), TRAIN, DEV, options(epochs=3), run=run_of(tmp_path / "one"))
    found = fit(small_model(packed.train), packed.train, packed.dev, options(epochs=3), run=run_of(tmp_path / "two"))
    assert without_seconds(found.records) == without_seconds(expected.records)
    assert same_run(tmp_path / "one", tmp_path / "two")


def test_scores_of_packed_data_are_those_of_memory(packed):
    model = small_model(TRAIN)
    one, other = (score_events(model, data, points=3) for data in (packed.train, TRAIN))
    assert np.array_equal(one.log_likelihood, other.log_likelihood) and np.array_equal(one.time, other.time)
    assert digest_of(packed.train) == digest_of(TRAIN)


def test_scores_do_not_depend_on_the_buffer(packed, monkeypatch):
    model = small_model(TRAIN).double()
    expected = mean_log_likelihood(model, TRAIN, 40)
    monkeypatch.setattr(
        "foretell.train.likelihood_task.fitting_order", lambda data, most: fitting_order(data, most, 150)
    )
    assert mean_log_likelihood(model, packed.train, 40) == pytest.approx(expected, abs=0.02)  # other draws


@pytest.mark.parametrize("asked", [1, 4, 9, 14])
def test_resuming_inside_an_epoch_of_groups_is_exact(asked, packed, tmp_path):
    chosen = options(epochs=2, buffer=150)

    def make():
        return small_model(packed.train, dropout=0.2)

    expected = fit(make(), packed.train, packed.dev, chosen, run=run_of(tmp_path / "one"))
    with pytest.raises(TrainingInterrupt):
        fit(make(), packed.train, packed.dev, chosen, run=run_of(tmp_path / "two"), stop=StopAfter(asked))
    found = fit(make(), packed.train, packed.dev, chosen, run=RunFolder.open(tmp_path / "two"), resume=True)
    assert without_seconds(found.records) == without_seconds(expected.records)
    assert same_tensors(found.model.state_dict(), expected.model.state_dict())
    assert same_run(tmp_path / "one", tmp_path / "two")


class DiesAfter:
    """Ends the run with an error that no checkpoint is written for, as a kill does, at the n-th step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, epoch: int, step: int, of: int) -> None:
        self.left -= 1
        if not self.left:
            raise SystemExit


def test_a_run_that_is_killed_inside_an_epoch_goes_on_from_its_last_checkpoint(packed, tmp_path):
    chosen = options(epochs=2, buffer=150, checkpoint_seconds=1e-9)  # after every step
    expected = fit(small_model(packed.train), packed.train, packed.dev, chosen, run=run_of(tmp_path / "one"))
    with pytest.raises(SystemExit):
        fit(
            small_model(packed.train),
            packed.train,
            packed.dev,
            chosen,
            run=run_of(tmp_path / "two"),
            on_step=DiesAfter(6),
        )
    again = RunFolder.open(tmp_path / "two")
    steps = []
    found = fit(
        small_model(packed.train),
        packed.train,
        packed.dev,
        chosen,
        run=again,
        resume=True,
        on_step=lambda *at: steps.append(at),
    )
    assert steps[0][:2] == (1, 6)
    assert same_tensors(found.model.state_dict(), expected.model.state_dict())


LIMITED = """
import resource, sys
import numpy as np
from foretell.batches.order import epoch_order
from foretell.data import load
import torch

def of_status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) << 10

torch.set_num_threads(1)
# what is mapped from files does not count
resource.setrlimit(resource.RLIMIT_DATA, (of_status("VmData") + (64 << 20),) * 2)
before = of_status("RssAnon")
data = load(sys.argv[1])
seen = 0
for batch in epoch_order(data.train, 64, np.random.default_rng(0), 200_000):
    seen += sum(float(data.train[int(one)].times.sum()) >= 0.0 for one in batch)
assert seen == len(data.train)
print(data.train.event_count, (of_status("RssAnon") - before) >> 20, of_status("RssFile") >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_an_epoch_over_packed_data_needs_the_memory_of_its_buffer(tmp_path):
    """Of 5,000,000 events the times alone are 40 MB."""
    from foretell.data.packed.simulating import simulate_packed
    from foretell.data.synthetic import PoissonProcess

    simulate_packed(PoissonProcess((10.0, 10.0)), "poisson", tmp_path / "packed", 8_300, 50.0, 0)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "packed")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    events, grown, _ = map(int, done.stdout.split())
    assert events > 4_900_000
    assert grown < 30, done.stdout


def test_packed_data_in_memory_and_on_disk_are_of_one_kind(packed):
    assert isinstance(packed.train, EventData)
    assert torch.equal(torch.tensor(packed.train[3].times), torch.tensor(TRAIN[3].times))
