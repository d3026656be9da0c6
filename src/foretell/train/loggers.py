"""Callbacks that send the settings of a run and the record of every epoch to TensorBoard, MLflow or Weights & Biases.

Each needs its package, which is imported when the callback is created: `pip install 'foretell[tensorboard]'`, `[mlflow]`, `[wandb]`.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from foretell.data.files import text_file
from foretell.errors import ForetellError
from foretell.options import check_choice
from foretell.reading import read_json
from foretell.train.callbacks import Callback
from foretell.train.processes import process_group
from foretell.wording import counted

log = logging.getLogger("foretell")
PROJECT = "foretell"
IDS = "loggers.json"  # in a run folder: ids of runs in MLflow and Weights & Biases


class LogCallback(Callback):
    """Base class that sends settings and epoch records to a service. With several processes, only the first one sends."""

    package = ""
    extra = ""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.found: Any = _package(self.package, self.extra)
        self.active = False
        self.lost = 0  # number of epochs that could not be sent

    def on_start(self, settings: dict[str, Any]) -> None:
        """Begin a run, or continue the one whose id is in the folder."""
        self.active = process_group().first
        if self.active:
            try:
                self.begin(settings)
            except Exception as error:  # each package has its own exceptions
                self.active = False
                raise ForetellError(f"{self.extra}: a run cannot be begun: {_first_line(error)}") from error

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Send the numbers of the record, with the names they have in `metrics.jsonl`."""
        numbers = {name: float(value) for name, value in record.items() if name != "epoch" and _is_number(value)}
        if self.active:
            try:
                self.send(numbers, int(record["epoch"]))
            except Exception as error:  # an unreachable server must not end a training
                self.lost += 1
                if self.lost == 1:
                    log.warning(
                        "%s: an epoch could not be sent, and training goes on: %s", self.extra, _first_line(error)
                    )

    def on_end(self) -> None:
        """End the run, also when training was stopped."""
        if self.active:
            self.active = False
            if self.lost > 1:
                log.warning("%s: %s could not be sent", self.extra, counted(self.lost, "epoch"))
            self.finish()

    def begin(self, settings: dict[str, Any]) -> None:
        """Open the connection and send the settings."""
        raise NotImplementedError

    def send(self, numbers: Mapping[str, float], epoch: int) -> None:
        """Send the numbers of one epoch."""
        raise NotImplementedError

    def finish(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    def remembered(self) -> str | None:
        """Return the id of the run that an earlier training into this folder began; None if there is none."""
        return None if self.folder is None else _ids(self.folder).get(self.extra)

    def remember(self, run: str) -> None:
        """Store the id of the run for a resumed training."""
        if self.folder is not None:
            with text_file(self.folder / IDS) as file:
                file.write(json.dumps(_ids(self.folder) | {self.extra: run}, indent=2) + "\n")


class TensorBoardCallback(LogCallback):
    """Writes event files for TensorBoard: a curve of every number of `metrics.jsonl`, and the settings as text.

    Needs `pip install 'foretell[tensorboard]'`.

    Args:
        folder: where event files go; `tensorboard --logdir FOLDER` shows them. A resumed training adds to them.

    Raises:
        ForetellError: the package is not installed.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> log = ft.TensorBoardCallback("tensorboard")
        >>> fitted = ft.fit(ft.NHP(data.vocabulary, dim=4), data, epochs=2, callbacks=[log])
    """

    package, extra = "torch.utils.tensorboard", "tensorboard"

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self.writer: Any = None

    def begin(self, settings: dict[str, Any]) -> None:
        self.writer = self.found.SummaryWriter(str(self.folder))
        self.writer.add_text("settings", f"```json\n{json.dumps(settings, indent=2)}\n```", 0)

    def send(self, numbers: Mapping[str, float], epoch: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


class MLflowCallback(LogCallback):
    """Logs a run in MLflow: settings as parameters, the numbers of every epoch as metrics.

    A run opened by `mlflow.start_run()` is used, and left open. Needs `pip install 'foretell[mlflow]'`.

    Args:
        experiment: the experiment of a new run; it is created if it does not exist.
        name: the name of a new run.
        tracking_uri: the store, such as `sqlite:///mlflow.db` or the address of a server; default: MLflow's setting.
        folder: a run folder in which the run's id is stored, so that a resumed training continues the run.

    Raises:
        ForetellError: the package is not installed.

    Example:
        >>> log = ft.MLflowCallback(name="nhp", tracking_uri="sqlite:///mlflow.db")  # for `fit(…, callbacks=[log])`
        >>> log.experiment
        'foretell'
    """

    package, extra = "mlflow", "mlflow"

    def __init__(
        self,
        experiment: str = PROJECT,
        name: str | None = None,
        tracking_uri: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        super().__init__(folder)
        self.experiment, self.name, self.tracking_uri = experiment, name, tracking_uri
        self.client: Any = None
        self.run, self.own = "", True

    def begin(self, settings: dict[str, Any]) -> None:
        entities = importlib.import_module("mlflow.entities")
        self.client = self.found.MlflowClient(self.tracking_uri)
        active, known = self.found.active_run(), self.remembered()
        self.own = active is None or self.tracking_uri is not None
        if active is not None and not self.own:
            self.run = active.info.run_id
        elif known is not None:
            self.run = known
            self.client.update_run(self.run, "RUNNING")
        else:
            found = self.client.get_experiment_by_name(self.experiment)
            place = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
            self.run = self.client.create_run(place, run_name=self.name).info.run_id
        self.remember(self.run)
        if known is None:
            texts = {name: str(value)[:6000] for name, value in flat(settings).items()}
            self.client.log_batch(self.run, params=[entities.Param(*pair) for pair in texts.items()])

    def send(self, numbers: Mapping[str, float], epoch: int) -> None:
        for name, value in numbers.items():
            self.client.log_metric(self.run, name, value, step=epoch)

    def finish(self) -> None:
        if self.own:
            self.client.set_terminated(self.run)


class WandbCallback(LogCallback):
    """Logs a run in Weights & Biases: settings as its configuration, the numbers of every epoch.

    A run opened by `wandb.init()` is used, and left open. Needs `pip install 'foretell[wandb]'`.

    Args:
        project: the project of a new run.
        name: the name of a new run.
        folder: the folder for its files and for the run's id, so that a resumed training continues the run.
        mode: "online", "offline" or "disabled"; default: the value of `WANDB_MODE`, else online.

    Raises:
        ForetellError: the package is not installed.

    Example:
        >>> log = ft.WandbCallback(name="nhp", mode="disabled")
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> fitted = ft.fit(ft.NHP(data.vocabulary, dim=4), data, epochs=2, callbacks=[log])
    """

    package, extra = "wandb", "wandb"

    def __init__(
        self,
        project: str = PROJECT,
        name: str | None = None,
        folder: str | Path | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
    ) -> None:
        super().__init__(folder)
        self.project, self.name, self.mode = project, name, mode
        self.run: Any = None
        self.own = True

    def begin(self, settings: dict[str, Any]) -> None:
        self.own = self.found.run is None
        if self.own:
            known = self.remembered()
            self.run = self.found.init(
                project=self.project,
                name=self.name,
                dir=None if self.folder is None else str(self.folder),
                mode=self.mode,
                id=known,
                resume=None if known is None else "allow",
            )
            self.remember(self.run.id)
        else:
            self.run = self.found.run
        self.run.config.update(settings, allow_val_change=True)

    def send(self, numbers: Mapping[str, float], epoch: int) -> None:
        self.run.log(dict(numbers), step=epoch)

    def finish(self) -> None:
        if self.own:
            self.run.finish()


KINDS: dict[str, type[LogCallback]] = {one.extra: one for one in (TensorBoardCallback, MLflowCallback, WandbCallback)}


def loggers(names: Iterable[str], folder: Path) -> list[LogCallback]:
    """Return the callbacks with these names for a run folder; TensorBoard and Weights & Biases write their files into it."""
    made: list[LogCallback] = []
    for name in dict.fromkeys(names):
        if name == "tensorboard":
            made.append(TensorBoardCallback(folder / "tensorboard"))
        elif name == "mlflow":
            made.append(MLflowCallback(name=folder.name, folder=folder))
        else:
            made.append(WandbCallback(name=folder.name, folder=folder))
    return made


def check_installed(names: Iterable[str]) -> None:
    """Raise `ForetellError` for an unknown name or a missing package, before any work is done."""
    for name in names:
        check_choice("log", name, list(KINDS))
        kind = KINDS[name]
        _package(kind.package, kind.extra)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one flat dict, with keys like `train.lr`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _ids(folder: Path) -> dict[str, str]:
    path = folder / IDS
    try:
        found = read_json(path) if path.exists() else {}
    except ForetellError as error:
        raise ForetellError(f"{error}; remove it to log into a new run") from None
    return {str(name): str(run) for name, run in found.items()} if isinstance(found, dict) else {}


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ForetellError(f"logging to {extra} needs a package: pip install 'foretell[{extra}]'") from None
