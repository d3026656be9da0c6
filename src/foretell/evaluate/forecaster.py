"""`Forecaster`: an estimator for data frames in the style of scikit-learn. Input and output are long frames with one row per event.

It combines other parts of the package: `from_frame`, the settings of `foretell train`, `fit`, `predict_each`, `sample_futures` and
`evaluate`. It is saved as a run folder, which the command line can also open.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import torch

from foretell.data import Card, Clock, ColumnMap, Dataset, EventData, ReadOptions
from foretell.data.files import replacing
from foretell.data.frames import FrameOptions, frame_events, frame_options
from foretell.errors import ForetellError
from foretell.evaluate.predict import By, predict_each
from foretell.evaluate.scores import Evaluation, evaluate
from foretell.ground.impossible import settle_impossible
from foretell.lang.program import Program
from foretell.models.base import IntensityModel
from foretell.models.capabilities import GrowsVocabulary, HasRules, meet_log
from foretell.models.registry import find_model
from foretell.reading import UnreadableFile, read_json
from foretell.sampling.core.futures import sample_futures
from foretell.train.callbacks import Callback
from foretell.train.config import RunConfig
from foretell.train.data_facts import data_facts
from foretell.train.fit import fit
from foretell.train.keyword_settings import AUTO, READING, settings_table, settled_config
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary, with_splits

ABOUT = "forecaster.json"  # beside the files of a run


class Forecaster:
    """An estimator that learns what happens next, and when, from a data frame with one row per event.

    Args:
        model: the kind of model, such as `anhp` or `hawkes`; `auto` chooses as `foretell train` does.
        program: rules from which the network is built: a `Program`, a file, or the name of a program in the package.
        **settings: options of the model, of training and of the data, named as in a configuration: `dim=32`, `epochs=20`.

    Attributes:
        model_: the fitted model, a `torch.nn.Module`.
        clock_: the unit of the model's times and how they relate to absolute time.
        records_: one record per epoch of training.

    Example:
        >>> import pandas as pd
        >>> when = pd.date_range("2024-03-01", periods=40, freq="6h")
        >>> orders = pd.DataFrame({"customer": ["a", "b"] * 20, "when": when, "product": ["tea", "tea", "milk", "milk"] * 10})
        >>> forecaster = ft.Forecaster("hawkes").fit(orders, sequence="customer", time="when", event="product")
        >>> list(forecaster.predict(orders, horizon="7d").sequence)
        ['a', 'b']
        >>> futures = forecaster.simulate(orders, horizon="30d", n=10)
        >>> list(futures.columns)
        ['sequence', 'sample', 'time', 'event']
    """

    model_: IntensityModel
    clock_: Clock
    records_: list[dict[str, Any]]
    _config: RunConfig
    _facts: dict[str, Any]
    _reading: ReadOptions

    def __init__(self, model: str = AUTO, program: Program | str | Path | None = None, **settings: Any) -> None:
        self.model, self.program, self.settings = model, program, settings

    def fit(
        self,
        frame: Any,
        *,
        sequence: str | None = None,
        time: str = "time",
        event: str = "event",
        dev: Any = None,
        callbacks: Iterable[Callback] = (),
        progress: bool | None = None,
        **how: Unpack[FrameOptions],
    ) -> Self:
        """Train on a frame. Later frames are read with the same columns and options.

        Args:
            frame: a data frame, or an `EventData`.
            sequence: as in `from_frame`.
            time: as in `from_frame`.
            event: as in `from_frame`.
            **how: how columns are read, as in `from_frame`.
            dev: a frame on which epochs are compared; default: a tenth of the sequences is set aside for that.
            callbacks: as in `foretell.fit`.
            progress: as in `foretell.fit`.

        Returns:
            The forecaster itself.
        """
        settings_table(self.model, self.program, self.settings)  # raises for wrong settings before data are read
        options = replace(frame_options(sequence, time, event, how), terms=self.program is not None)
        train = frame if isinstance(frame, EventData) else frame_events(frame, options, None, "train")
        reading = replace(options, clock=train.clock, unknown=how.get("unknown", "skip"))
        held = None if dev is None else _events(dev, reading, "dev")
        data = Dataset(train, held, None, train.vocabulary, Card("frame", train.origin, train.clock.unit))
        data = data if held is None else _over_one_vocabulary(data, train, held)
        config = settled_config(self.model, self.program, self.settings, data)
        unknown = reading.unknown if self.program is None else "skip"
        how_split = replace(config.data, path=data.card.name, unknown=unknown)
        data = with_splits(data, how_split, split=held is None)
        network = self._new_model(config, data)
        data = replace(data, **{name: _settled(network, one, config) for name, one in data.splits().items()})
        assert data.train is not None
        result = fit(network, data.train, data.dev, config.train, callbacks=callbacks, progress=progress)
        self.model_, self.records_, self.clock_ = result.model, result.records, train.clock
        said = {name: getattr(options, name) for name in READING} | {"unknown": reading.unknown}
        self._config = replace(config, data=replace(config.data, columns=_parts(options.columns), **said))
        self._facts = data_facts(data)
        self._reading = replace(reading, observed_until="")
        return self

    def _new_model(self, config: RunConfig, data: Dataset) -> IntensityModel:
        how: dict[str, Any] = {"seed": config.train.seed, "dtype": getattr(torch, config.train.dtype)}
        if self.program is None:
            return config.model.make(data.vocabulary, **how)
        kind = find_model(config.model.kind)
        if not kind.about.has_rules:
            raise ForetellError(f"program: {kind.title} has no rules; leave it out, or take a model that has")
        made: Any = kind
        model = made(self.program, data.vocabulary, config.model, **how)
        meet_log(model, data.train)
        return model

    def predict(
        self,
        frame: Any,
        horizon: str | float | None = None,
        *,
        top: int = 1,
        observed_until: str = "",
        by: By = "quadrature",
        n: int = 1000,
        seed: int = 0,
    ) -> Any:
        """Predict the next event of each sequence: its time and type.

        Args:
            frame: the histories.
            horizon: a length of time, such as `7d` or a number in the clock's unit; later events do not count.
            top: the number of most probable events per sequence.
            observed_until: the end of observation of all sequences; default: `t_end`, or the last event of each sequence.
            by: "quadrature" or "samples".
            n: draws per sequence, if samples are drawn.
            seed: the seed of the draws.

        Returns:
            A frame, one row per sequence and rank: `sequence`, `rank`, `time` (the median; missing if it is after the horizon), `event`,
            its `probability` of being next (within the horizon), the probability of `no_event`, the mean time, and intervals.
        """
        data = self._read(frame, observed_until)
        until = None if horizon is None else self._duration(horizon)
        asked: dict[str, Any] = {"top": top, "by": by, "n": n, "seed": seed}
        return predict_each(self.model_, data, horizon=until, **asked).to_frame()

    def simulate(
        self, frame: Any, horizon: str | float, n: int = 100, *, observed_until: str = "", seed: int = 0
    ) -> Any:
        """Draw futures of each sequence.

        Args:
            frame: the histories.
            horizon: the length of the futures: a number in the clock's unit, or a duration such as `"30d"`.
            n: the number of futures per sequence.
            observed_until: the end of observation, at which futures begin; default: the end of each sequence.
            seed: the seed of the draws.

        Returns:
            A frame with one row per event: `sequence`, `sample`, `time`, `event`.
        """
        data = self._read(frame, observed_until)
        return sample_futures(self.model_, data, horizon=self._duration(horizon), n=n, seed=seed).to_frame()

    def score(self, frame: Any) -> float:
        """Return the log-likelihood of a frame's events in nats per event; higher is better.

        Args:
            frame: the events.

        Returns:
            The score.
        """
        return float(self.evaluate(frame, times=False).log_likelihood.value)

    def evaluate(self, frame: Any, **options: Any) -> Evaluation:
        """Compute every score and its interval.

        Args:
            frame: the events.
            **options: as in `foretell.evaluate`.

        Returns:
            The scores.
        """
        return evaluate(self.model_, self._read(frame), **options)

    def _duration(self, horizon: str | float) -> float:
        return self.clock_.duration(str(horizon), "horizon")

    def _read(self, frame: Any, observed_until: str = "") -> EventData:
        """Read a frame with the columns, clock and vocabulary of the model."""
        if not hasattr(self, "model_"):
            raise ForetellError("this forecaster has learned nothing yet: call fit first")
        data = _events(frame, replace(self._reading, observed_until=str(observed_until)), "frame", self.model_)
        return _settled(self.model_, data, self._config)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters, as in scikit-learn.

        Args:
            deep: ignored; scikit-learn passes it.

        Returns:
            `model`, `program` and the settings.
        """
        return {"model": self.model, "program": self.program, **self.settings}

    def set_params(self, **params: Any) -> Self:
        """Change parameters of the constructor, with effect from the next `fit`.

        Args:
            **params: `model`, `program` or settings.

        Returns:
            The forecaster itself.
        """
        self.model, self.program = params.pop("model", self.model), params.pop("program", self.program)
        self.settings = {**self.settings, **params}
        return self

    def clone(self) -> Self:
        """Return an untrained forecaster with the same parameters."""
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        """Return tags for scikit-learn: neither a classifier nor a regressor, and `y` is not required."""
        utils = importlib.import_module("sklearn.utils")
        return utils.Tags(estimator_type=None, target_tags=utils.TargetTags(required=False))

    def __repr__(self) -> str:
        given = {name: value for name, value in self.get_params().items() if value is not None}
        return f"Forecaster({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a run folder, which `foretell predict` and the other commands can also open.

        Args:
            path: the folder.
            overwrite: whether a forecaster in that folder is replaced.
        """
        if not hasattr(self, "model_"):
            raise ForetellError("this forecaster has learned nothing yet: call fit first")
        run = RunFolder(Path(path))
        if (run.path / ABOUT).exists():
            if not overwrite:
                raise ForetellError(f"{path}: there is a forecaster in this folder; overwrite=True replaces it")
            run.discard()
        run = RunFolder.create(run.path, self._config, self._facts)
        run.save_model(self.model_)
        run.keep_program(self.model_)
        run.write_metrics(self.records_)
        reading = {name: getattr(self._reading, name) for name in READING}
        about = {
            "model": self.model,
            "program": None if self.program is None else str(self.program),
            "settings": self.settings,
            "columns": asdict(self._reading.columns),
            "reading": reading,
            "clock": asdict(self.clock_),
        }
        with replacing(run.path / ABOUT) as temporary:
            temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a forecaster from a folder that `save` wrote.

        Args:
            path: the folder.
            device: the device of the model's tensors.

        Returns:
            The forecaster.
        """
        run = RunFolder.open(path)
        try:
            about = read_json(run.path / ABOUT)
            made = cls(about["model"], about["program"], **about["settings"])
            args = about["columns"].pop("args")
            columns = ColumnMap(**about["columns"], args=None if args is None else tuple(args))
            made.clock_ = Clock(**about["clock"])
            made._reading = ReadOptions(columns, **about["reading"], clock=made.clock_, keywords=True)
        except UnreadableFile as error:
            if not error.missing:
                raise
            raise ForetellError(f"{path}: this run was not saved by a forecaster: it has no {ABOUT}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ForetellError(f"{Path(path) / ABOUT}: not what a forecaster wrote: {error}") from None
        made.model_, made.records_ = run.model(device), run.metrics()
        made._config, made._facts = run.config(), run.facts()
        if isinstance(made.model_, HasRules):
            made.program = made.model_.program
        return made


def _events(frame: Any, reading: ReadOptions, name: str, model: IntensityModel | None = None) -> EventData:
    """Read the events of a frame, in the vocabulary of `model` if there is one. New names are added to that of a model of rules."""
    grows = model is not None and isinstance(model, GrowsVocabulary)
    known = None if model is None or grows else model.vocabulary
    data = frame if isinstance(frame, EventData) else frame_events(frame, reading, known, name)
    if model is None:
        return data
    if isinstance(model, GrowsVocabulary):
        model.widen(data.vocabulary.names[kind] for kind in np.flatnonzero(data.type_counts()))
    return in_vocabulary(data, model.vocabulary, reading.unknown)


def _parts(columns: ColumnMap) -> dict[str, str]:
    """Return the columns under their names in a configuration."""
    args = {f"arg{place}": name for place, name in enumerate(columns.args or (), 1)}
    given = {name: value for name, value in asdict(columns).items() if isinstance(value, str)}
    usual = asdict(ColumnMap())
    return {name: value for name, value in given.items() if value != usual[name]} | args


def _over_one_vocabulary(data: Dataset, train: EventData, dev: EventData) -> Dataset:
    """Return a data set of both splits, over the union of their event types."""
    names = type(train.vocabulary)(tuple(sorted({*train.vocabulary.names, *dev.vocabulary.names})))
    return replace(data, train=in_vocabulary(train, names), dev=in_vocabulary(dev, names), vocabulary=names)


def _settled(model: IntensityModel, data: EventData, config: RunConfig) -> EventData:
    """Treat events that rules forbid as the setting `impossible` says; with `error`, the model reports them when it reads them."""
    if not isinstance(model, HasRules) or config.data.impossible == "error":
        return data
    return settle_impossible(model.program, data, config.data.impossible).data
