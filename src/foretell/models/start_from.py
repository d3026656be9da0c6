"""Initialise a model from another run: parameters that fit are copied, the others are initialised as usual, and both are listed.

From a model of the same kind and sizes everything is copied, including its units of time. From a pretrained encoder, a classifier, or an
A-NHP with other coarse types, the encoder is copied: time features, vectors of the event types, and `Q, K, V` and sublayers of every
layer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.start import start_intensities
from foretell.models.base import IntensityModel
from foretell.models.build import Network, describe, rebuild
from foretell.models.capabilities import DirectFit
from foretell.models.covariates import add_covariates
from foretell.models.task_heads import MaskedANHP, TaskHead
from foretell.options import names_of

SHOWN = 3


@dataclass(frozen=True)
class TransferReport:
    source: str
    kind: str
    taken: tuple[str, ...]  # names of the tensors that come from the source
    fresh: tuple[str, ...]  # names of the tensors that are initialised as usual

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "kind": self.kind, "taken": list(self.taken), "fresh": list(self.fresh)}

    def sentence(self) -> str:
        fresh = f"; {', '.join(self.fresh)} start fresh" if self.fresh else "; nothing starts fresh"
        return f"from {self.source} ({self.kind}): {', '.join(self.taken)}{fresh}"


def start_from(
    model: IntensityModel, source: Network, data: EventData, name: str, *, seed: int = 0, head: bool = False
) -> tuple[IntensityModel, TransferReport]:
    """A new model initialised with the parameters of another model; parameters that do not fit are initialised as usual.

    Args:
        model: the new model, which determines the options.
        source: the trained model, pretrained encoder or classifier.
        data: the training data of the new model.
        name: the name of the source in messages.
        seed: the seed for parameters that are not copied.
        head: copy the head of masked pretraining too: its weights initialise the intensities, and the vector of masked events
            initialises the one coarse type. Both vectors stand for an event whose time is known and whose type is not.

    Returns:
        The model, and a report of the tensors that were copied and that were not.

    Raises:
        ForetellError: the source is of another kind, or has other sizes or event types.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> source = ft.fit(ft.NHP(data.vocabulary, dim=4), data, epochs=1).model
        >>> model, report = ft.start_from(ft.NHP(data.vocabulary, dim=4), source, data, "earlier")
        >>> report.kind, report.fresh
        ('NHP', ())
    """
    if isinstance(model, DirectFit):
        raise ForetellError(f"`init={name}`: {model.title} is fitted directly, so it does not matter where it starts")
    other = source.encoder if isinstance(source, TaskHead) else source
    if other.kind != model.kind:
        raise ForetellError(
            f"`init={name}`: it has {'' if other is source else 'an encoder of '}{other.title}, and the model is {model.title}; "
            f"choose `model={other.kind}`, or start from a run of {model.title}"
        )
    _check_types(other.vocabulary, model.vocabulary, name)
    if (
        isinstance(model, ANHP)
        and isinstance(other, ANHP)
        and (other is not source or model.options.coarse != other.options.coarse)
    ):
        if other.covariates is not None and model.covariates is None:
            add_covariates(model, other.covariates.encoding, len(other.covariates.kept_numbers))
        return model, take_encoder(model, source, data, name, seed=seed, head=head)
    if head:
        raise ForetellError(f"train.init_head: {name} is {source.title}, expected a run of masked pretraining")
    _check_options(model, other, name)
    free = {"dtype", *_free(model)}  # options that may differ in a new run
    spec = {**other.spec(), **{key: value for key, value in model.spec().items() if key in free}}
    made = rebuild({**describe(other), "spec": spec})
    assert isinstance(made, IntensityModel)
    made.load_state_dict(other.state_dict())
    return made, TransferReport(name, source.title, _groups(made.state_dict()), ())


def take_encoder(
    model: ANHP, source: Network, data: EventData, name: str, *, seed: int = 0, head: bool = False
) -> TransferReport:
    """Copy the encoder alone. Intensities are initialised anew, from the copied vectors and the rates of `data`."""
    other = source.encoder if isinstance(source, TaskHead) else source
    if not isinstance(other, ANHP):
        raise ForetellError(
            f"`init={name}`: it is {other.title}, which has no encoder of A-NHP; start from a run that has"
        )
    _check_types(other.vocabulary, model.vocabulary, name)
    _check_options(model, other, name, but=("coarse",))
    mine, theirs = model.state_dict(), other.state_dict()
    taken = [key for key in mine if key in ("fine", "bos_base") or key.startswith(("attention.", "covariates."))]
    model.time.set_range(other.time.m, other.time.M)
    with torch.no_grad():
        for key in taken:
            mine[key].copy_(theirs[key])  # a view of the parameter itself
    start_intensities(model, torch.Generator().manual_seed(seed))
    if head:
        taken += _take_head(model, source, name)
    model.start_rates(data)
    model.fitted = True
    fresh = [key for key in mine if key not in taken]
    return TransferReport(name, source.title, _groups(taken), _groups(fresh))


def _take_head(model: ANHP, source: Network, name: str) -> list[str]:
    if not isinstance(source, MaskedANHP):
        raise ForetellError(f"train.init_head: {name} is {source.title}, expected a run of masked pretraining")
    if len(model.coarse_base) != 1:
        raise ForetellError(
            'train.init_head: expected one coarse type for all events (model.coarse = "one"), whose vector is then that of `mask`'
        )
    with torch.no_grad():
        model.coarse_base[0] = source.base
        model.w.copy_(source.weight)
    return ["coarse_base", "w"]


def _groups(names: Any) -> tuple[str, ...]:
    """Return the names of tensors, with all tensors of a list of layers under one name."""
    return tuple(dict.fromkeys(str(name).split(".")[0] for name in names))


def _check_types(theirs: Vocabulary, mine: Vocabulary, name: str) -> None:
    if theirs == mine:
        return
    lost = [one for one in theirs.names if one not in mine]
    new = [one for one in mine.names if one not in theirs]
    said = [
        f"{what}: {', '.join(found[:SHOWN])}{' …' if len(found) > SHOWN else ''} ({len(found)})"
        for what, found in (("only there", lost), ("only in the data", new))
        if found
    ]
    found = "; ".join(said) if said else "the same types, in another order"
    raise ForetellError(
        f"`init={name}`: its event types are not those of the data ({found}); use data with the same types, listed in `types.json`"
    )


def _free(model: IntensityModel) -> list[str]:
    return [one.name for one in fields(model.options) if one.metadata.get("free")]


def _check_options(model: IntensityModel, other: IntensityModel, name: str, but: tuple[str, ...] = ()) -> None:
    """Check that all options that determine sizes and meaning of tensors are equal. Programs are compared by their rules."""
    mine, theirs = model.spec(), other.spec()
    keys = [key for key in names_of(model.options) if key in theirs and key not in (*_free(model), *but)]
    wrong = [key for key in keys if mine.get(key) != theirs.get(key)]
    if wrong:
        raise ForetellError(
            "\n".join(
                f"`init={name}`: model.{key} = {_said(theirs.get(key))} there and {_said(mine.get(key))} here; leave it out here, "
                "or start from another run"
                for key in wrong
            )
        )


def _said(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
