"""One trial of a search: a setting is fitted on train, its dev score after every epoch goes to the pruner, and its end to the study."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from foretell.data import Dataset
from foretell.errors import ForetellError
from foretell.ground.impossible import settle_impossible
from foretell.models.rules.rule_model import RuleModel
from foretell.train.config import RunConfig
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.scored_events import sum_scored
from foretell.train.space import Setting, Space
from foretell.train.study import ABOUT, Tried, finished, load_optuna, put_back, spelled, suggested, tried_of

if TYPE_CHECKING:
    import optuna

log = logging.getLogger("foretell")


@dataclass(frozen=True)
class News:
    """What a worker tells: a trial's epoch, or (with `tried`) its end."""

    number: int
    setting: Setting
    epoch: int = 0
    score: float | None = None
    tried: Tried | None = None


def one_trial(
    study: optuna.Study,
    trial: optuna.Trial,
    space: Space,
    dataset: Dataset,
    tell: Callable[[News], None],
    over: Callable[[], bool],
) -> None:
    """Fit a setting and tell the study; nothing that goes wrong with it reaches the caller, but a wish to stop puts it back."""
    states = load_optuna().trial.TrialState
    setting = suggested(trial, space)
    about: dict[str, Any] = {"setting": setting}
    earlier = next((one for one in _whole(study) if spelled(one.setting) == spelled(setting)), None)
    if earlier is not None:  # the same seed would give the same score
        about |= {name: getattr(earlier, name) for name in ("score", "epochs", "best_epoch", "parameters")}
        about["same_as"] = earlier.number
        score, state = earlier.score, states.COMPLETE
    else:
        began = time.perf_counter()
        try:
            score = _Runner(study, trial, setting, about, tell, over).fit(space.config(setting), dataset)
            state = states.COMPLETE
        except _Hopeless:
            score, state = None, states.PRUNED
        except (TrainingInterrupt, KeyboardInterrupt):
            put_back(study, trial)
            return
        except Exception as error:  # whatever a setting breaks, the others are still to be tried
            log.debug("trial %d", trial.number, exc_info=True)
            about["error"] = f"{type(error).__name__}: {error}"
            score, state = None, states.FAIL
        about["seconds"] = round(time.perf_counter() - began, 2)
    trial.set_user_attr(ABOUT, about)  # once: every write waits for the disk
    study.tell(trial, score, state=state)
    tell(News(trial.number, setting, tried=tried_of(study.get_trials(deepcopy=False)[trial.number])))


def _whole(study: optuna.Study) -> list[Tried]:
    return [one for one in finished(study) if one.state == "complete" and one.same_as is None]


class _Hopeless(Exception):  # noqa: N818 (not an error)
    """The pruner has seen enough of this setting."""


@dataclass
class _Runner:
    """One fit, watched by the pruner."""

    study: optuna.Study
    trial: optuna.Trial
    setting: Setting
    about: dict[str, Any]  # what will be written of the trial
    tell: Callable[[News], None]
    over: Callable[[], bool]

    def fit(self, config: RunConfig, dataset: Dataset) -> float:
        dtype = getattr(torch, config.train.dtype)
        model = config.model.make(dataset.vocabulary, seed=config.train.seed, dtype=dtype)
        train, dev = dataset.train, dataset.dev
        assert train is not None and dev is not None
        how = config.data.impossible
        if isinstance(model, RuleModel) and how != "error":  # with "error", `fit` names what is impossible
            train, dev = (settle_impossible(model.program, data, how).data for data in (train, dev))
        self.tell(News(self.trial.number, self.setting))
        result = fit(model, train, dev, config.train, on_epoch=self.epoch, stop=self.over)
        if not math.isfinite(result.best):
            raise ForetellError(f"the log-likelihood of dev is {result.best}")
        self.comparable(sum_scored(dev, np.arange(len(dev)), config.train.window, model.unscored))
        self.about |= {"score": result.best, "epochs": len(result.records), "best_epoch": result.best_epoch}
        self.about["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        return result.best

    def epoch(self, record: dict[str, Any]) -> None:
        score = record.get("dev")
        if score is None:  # a direct fit: its rounds have no dev score
            return
        self.about["epochs"] = record["epoch"]
        if score > self.about.get("score", -math.inf):
            self.about |= {"score": score, "best_epoch": record["epoch"]}
        self.tell(News(self.trial.number, self.setting, record["epoch"], self.about["score"]))
        self.trial.report(score, record["epoch"])
        if self.trial.should_prune():
            raise _Hopeless

    def comparable(self, scored: int) -> None:
        """Rules may leave some events unscored: then the mean over the others says nothing about who is better."""
        told = [one.user_attrs.get(ABOUT, {}) for one in self.study.get_trials(deepcopy=False)]
        others = [about["scored"] for about in told if "scored" in about]
        if others and others[0] != scored:
            raise ForetellError(
                f"this setting scores {scored} events of dev, others {others[0]}: they cannot be compared"
            )
        self.about["scored"] = scored
