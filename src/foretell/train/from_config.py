"""A configuration, a model and data in, what the configuration asks for out: a trained model, a pretrained encoder, or a classifier."""

from __future__ import annotations

from typing import Any

from foretell.data import Dataset, EventData
from foretell.data.labels import find_labels
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.build import Network
from foretell.models.start_from import Taken, start_from, take_encoder
from foretell.train.classify import Classification, classify
from foretell.train.config import RunConfig
from foretell.train.fit import Fit, fit
from foretell.train.pretrain import Pretraining, pretrain
from foretell.train.task import ClassifyOptions, PretrainOptions

AnyTraining = Fit | Pretraining | Classification


def train_from_config(config: RunConfig, model: IntensityModel, dataset: Dataset, **keywords: Any) -> AnyTraining:
    """Call `fit`, `pretrain` or `classify`; `keywords` are the run folder and callbacks, as in `fit`."""
    assert dataset.train is not None
    task = config.task
    if task is None:
        return fit(model, dataset.train, dataset.dev, config.train, **keywords)
    encoder = encoder_of(config, model)
    if isinstance(task, PretrainOptions):
        shares = {"mask": task.mask, "drop": task.drop, "dev_rounds": task.dev_rounds}
        return pretrain(encoder, dataset.train, dataset.dev, config.train, **shares, **keywords)
    labels = find_labels(dataset.splits().values(), task.label)
    what = {"label": task.label, "history": task.history, "labels": labels}
    return classify(encoder, dataset.train, dataset.dev, config.train, **what, **keywords)


def initialised(
    config: RunConfig, model: IntensityModel, source: Network, data: EventData
) -> tuple[IntensityModel, Taken]:
    """The model of a configuration with what another run has learned, and a report of what was taken over."""
    name, seed = config.train.init, config.train.seed
    if config.task is None:
        return start_from(model, source, data, name, seed=seed, head=config.train.init_head)
    return model, take_encoder(encoder_of(config, model), source, data, name, seed=seed)


def encoder_of(config: RunConfig, model: IntensityModel) -> ANHP:
    if not isinstance(model, ANHP):
        task = "classification" if isinstance(config.task, ClassifyOptions) else "masked pretraining"
        raise ForetellError(
            f'{task} is for A-NHP, whose encoder can see both ways, and not for {model.title}: use model.kind = "anhp"'
        )
    return model
