"""TensorBoard, MLflow and Weights & Biases hear of every epoch; what they keep is read back, without a network."""

import json
import logging
import sys
import time

import pytest

import foretell as ft
from foretell.errors import ForetellError
from foretell.train.loggers import IDS, LogCallback, flat, loggers
from tests.samples import random_data


def trained(*callbacks, epochs=2, **how):
    data = random_data(0, [3, 4, 5, 3])
    return ft.fit(ft.NHP(data.vocabulary, dim=4), data, dev=data, epochs=epochs, lr=0.01, callbacks=callbacks, **how)


def events(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), size_guidance={accumulator.SCALARS: 0})
    return found.Reload()


def test_tensorboard_files_have_every_number_of_every_epoch(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    result = trained(ft.TensorBoardCallback(tmp_path))
    found = events(tmp_path)
    assert set(found.Tags()["scalars"]) >= {"train", "dev", "lr", "train_seconds"}
    for name in ("train", "dev", "lr"):
        kept = [(one.step, one.value) for one in found.Scalars(name)]
        assert kept == [(one["epoch"], pytest.approx(one[name])) for one in result.records]
    (text,) = found.Tensors("settings/text_summary")
    settings = json.loads(text.tensor_proto.string_val[0].decode().removeprefix("```json").removesuffix("```"))
    assert settings["model"]["kind"] == "nhp" and settings["train"]["lr"] == 0.01
    assert settings["data"]["train"] == {"sequences": 4, "events": 15}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of stores in files, which are made sooner than those in SQLite
def test_mlflow_keeps_settings_and_every_epoch(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri()
    callback = ft.MLflowCallback("trials", "first", uri, tmp_path)
    result = trained(callback)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("trials").experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "first"
    assert run.data.params["train.lr"] == "0.01" and run.data.params["model.kind"] == "nhp"
    kept = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "dev")]
    assert kept == [(one["epoch"], pytest.approx(one["dev"])) for one in result.records]
    # a training that is resumed goes on with the run
    trained(ft.MLflowCallback("trials", "first", uri, tmp_path))
    assert len(client.search_runs([run.info.experiment_id])) == 1
    assert len(client.get_metric_history(run.info.run_id, "dev")) == 4


def records(content, block=32768):
    """The records of a file of wandb: those of a LevelDB log, after a header of seven bytes."""
    place, whole = 7, b""
    while place + 7 <= len(content):
        if block - place % block < 7:
            place += block - place % block
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def finished_records(path):
    """Those of a run that has ended; the service of wandb writes the last ones a moment later."""
    from wandb.proto.wandb_internal_pb2 import Record

    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        found = [Record.FromString(content) for content in records(path.read_bytes())]
        if found and found[-1].HasField("exit"):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{path}: no end was written")


def test_wandb_keeps_settings_and_every_epoch_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = trained(ft.WandbCallback("trials", "first", tmp_path, "offline"))
    (path,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    rows, settings = [], {}
    for record in finished_records(path):
        if record.HasField("history"):
            rows.append({(one.key or one.nested_key[0]): json.loads(one.value_json) for one in record.history.item})
        for field in ("run", "config"):
            if record.HasField(field):
                update = record.run.config.update if field == "run" else record.config.update
                settings |= {(one.key or one.nested_key[0]): json.loads(one.value_json) for one in update}
    assert [row["dev"] for row in rows] == [pytest.approx(one["dev"]) for one in result.records]
    assert [row["_step"] for row in rows] == [1, 2]
    assert settings["model"]["kind"] == "nhp" and settings["train"]["lr"] == 0.01
    assert json.loads((tmp_path / IDS).read_text())["wandb"] in path.name


class BrokenCallback(LogCallback):
    package, extra = "json", "broken"

    def __init__(self, at_start=False):
        super().__init__()
        self.at_start, self.ended = at_start, False

    def begin(self, settings):
        if self.at_start:
            raise OSError("no such host")

    def send(self, numbers, epoch):
        raise OSError("the server is gone\nmore")

    def finish(self):
        self.ended = True


def test_a_server_that_is_gone_does_not_end_a_training_and_is_told_once(caplog):
    log = BrokenCallback()
    with caplog.at_level(logging.WARNING, "foretell"):
        assert len(trained(log, epochs=3).records) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "broken: an epoch could not be sent, and training goes on: the server is gone",
        "broken: 3 epochs could not be sent",
    ]
    assert log.ended


def test_a_run_that_cannot_be_begun_is_told_before_training():
    with pytest.raises(ForetellError, match="broken: a run cannot be begun: no such host"):
        trained(BrokenCallback(at_start=True))


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (lambda: ft.TensorBoardCallback("x"), "torch.utils.tensorboard", "tensorboard"),
        (ft.MLflowCallback, "mlflow", "mlflow"),
        (ft.WandbCallback, "wandb", "wandb"),
    ],
)
def test_a_package_that_is_missing_is_named(monkeypatch, make, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ForetellError, match=rf"pip install 'foretell\[{extra}\]'"):
        make()


def test_the_end_is_told_also_where_training_is_stopped_or_fails(tmp_path):
    class Ends(ft.Callback):
        def __init__(self, error):
            self.error, self.heard = error, []

        def on_start(self, settings):
            self.heard.append(settings["model"]["kind"])

        def on_epoch(self, record):
            raise self.error

        def on_end(self):
            self.heard.append("end")

    for error in (ft.TrainingInterrupt(), ValueError("wrong")):
        callback = Ends(error)
        with pytest.raises(type(error)):
            trained(callback)
        assert callback.heard == ["nhp", "end"]


def test_loggers_of_a_command_are_made_once_each(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    (made,) = loggers(["tensorboard", "tensorboard"], tmp_path)
    assert made.folder == tmp_path / "tensorboard"


def test_nested_settings_get_whole_names():
    assert flat({"a": 1, "b": {"c": 2, "d": {"e": 3}}}) == {"a": 1, "b.c": 2, "b.d.e": 3}
