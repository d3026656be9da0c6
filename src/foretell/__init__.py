"""foretell: learn what happens next, and when, from irregularly timed events.

    import foretell as ft
    data = ft.load("robocup")
    model = ft.ANHP(data.vocabulary, dim=32, layers=2)
    run = ft.fit(model, data.train, dev=data.dev)
    ft.evaluate(model, data.test)

Names are imported on first use, so that `foretell data …` does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from foretell import models, moved

if TYPE_CHECKING:
    from foretell.data import (
        Dataset,
        EventData,
        EventSequence,
        Vocabulary,
        from_frame,
        load,
        load_file,
        save,
        save_dataset,
    )
    from foretell.errors import DataError, ForetellError
    from foretell.evaluate.explain import explain
    from foretell.evaluate.forecaster import Forecaster
    from foretell.evaluate.predict import predict, predict_each
    from foretell.evaluate.queries import embeddings_of, intensities_at
    from foretell.evaluate.scores import evaluate
    from foretell.evaluate.task_scores import predict_labels, score_labels, score_masked
    from foretell.ground.explain import why
    from foretell.ground.impossible import settle_impossible
    from foretell.ground.replay import replay
    from foretell.lang.diagnostics import ProgramError
    from foretell.lang.program import Program
    from foretell.models import *  # noqa: F403
    from foretell.models.build import load_model, save_model
    from foretell.models.start_from import start_from
    from foretell.report import plots as plot
    from foretell.sampling.core.futures import sample, sample_futures, sample_next
    from foretell.search.auto import auto
    from foretell.train.callbacks import Callback
    from foretell.train.fit import fit
    from foretell.train.interrupting import TrainingInterrupt
    from foretell.train.label_tasks import classify, pretrain
    from foretell.train.loggers import MLflowCallback, TensorBoardCallback, WandbCallback
    from foretell.train.run import RunFolder

_HOMES = {
    "foretell.data": "Dataset EventData EventSequence Vocabulary from_frame load load_file save save_dataset",
    "foretell.errors": "DataError ForetellError",
    "foretell.ground.explain": "why",
    "foretell.ground.impossible": "settle_impossible",
    "foretell.ground.replay": "replay",
    "foretell.lang.program": "Program",
    "foretell.lang.diagnostics": "ProgramError",
    "foretell.models.build": "load_model save_model",
    "foretell.sampling.core.futures": "sample sample_futures sample_next",
    "foretell.train.label_tasks": "classify pretrain",
    "foretell.train.fit": "fit",
    "foretell.search.auto": "auto",
    "foretell.models.start_from": "start_from",
    "foretell.evaluate.task_scores": "predict_labels score_labels score_masked",
    "foretell.train.run": "RunFolder",
    "foretell.train.interrupting": "TrainingInterrupt",
    "foretell.train.callbacks": "Callback",
    "foretell.train.loggers": "MLflowCallback TensorBoardCallback WandbCallback",
    "foretell.evaluate.scores": "evaluate",
    "foretell.evaluate.queries": "embeddings_of intensities_at",
    "foretell.evaluate.explain": "explain",
    "foretell.evaluate.forecaster": "Forecaster",
    "foretell.evaluate.predict": "predict predict_each",
}
moved.install()
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_HOME_OF |= dict.fromkeys(models.__all__, "foretell.models")

__all__ = [
    "Callback",
    "DataError",
    "Dataset",
    "EventData",
    "EventSequence",
    "Forecaster",
    "ForetellError",
    "MLflowCallback",
    "Program",
    "ProgramError",
    "RunFolder",
    "TensorBoardCallback",
    "TrainingInterrupt",
    "Vocabulary",
    "WandbCallback",
    "auto",
    "classify",
    "embeddings_of",
    "evaluate",
    "explain",
    "fit",
    "from_frame",
    "intensities_at",
    "load",
    "load_file",
    "load_model",
    "plot",
    "predict",
    "predict_each",
    "predict_labels",
    "pretrain",
    "replay",
    "sample",
    "sample_futures",
    "sample_next",
    "save",
    "save_dataset",
    "save_model",
    "score_labels",
    "score_masked",
    "settle_impossible",
    "start_from",
    "why",
]
__all__ += models.__all__


def _predict(model: object, *arguments: object, **options: object) -> object:
    return __getattr__("predict")(model, *arguments, **options)  # pyright: ignore[reportCallIssue]


models.ATTACHED["predict"] = _predict


def __getattr__(name: str) -> object:
    if name == "plot":
        return importlib.import_module("foretell.report.plots")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'foretell' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
