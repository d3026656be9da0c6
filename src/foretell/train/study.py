"""A search on disk: an optuna study in a journal or a database, its trials as plain records, and the files with its results.

Trials that were interrupted, or whose process has ended, are queued again.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretell.data.files import text_file
from foretell.errors import ForetellError
from foretell.train.config import to_toml
from foretell.train.file_lock import FileLock
from foretell.train.space import KIND, Choices, Range, Setting, Space

if TYPE_CHECKING:
    import optuna

State = Literal["complete", "pruned", "failed"]
STATES: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
OPEN_SECONDS = 60.0
STUDY, ABOUT, PROCESS = "foretell", "about", "process"
BEST, TABLE, JOURNAL, SQLITE = "best.toml", "trials.jsonl", "study.journal", "study.sqlite"


@dataclass(frozen=True)
class TrialRecord:
    """One setting and its score."""

    number: int
    state: State
    setting: Setting
    score: float | None = None  # dev log-likelihood per event, of the best epoch so far
    epochs: int = 0
    best_epoch: int | None = None
    seconds: float = 0.0
    parameters: int | None = None
    same_as: int | None = None  # number of an earlier trial with this setting, whose score was reused without a fit
    error: str | None = None


def storage_url(given: str, folder: Path) -> str:
    """Return the path or URL of a storage: `journal`, `sqlite`, `sqlite:PATH`, or the URL of a database."""
    if given == "journal":
        return str(folder / JOURNAL)
    if given == "sqlite":
        return f"sqlite:///{folder / SQLITE}"
    if "://" in given:
        return given
    if given.startswith("sqlite:") and given != "sqlite:":
        return f"sqlite:///{given.removeprefix('sqlite:')}"
    raise ForetellError(f"storage = {given!r}: expected journal, sqlite, sqlite:PATH or the URL of a database")


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ForetellError("tuning needs optuna: pip install 'foretell[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def open_storage(url: str) -> Any:
    optuna = load_optuna()
    if "://" in url:
        if url.startswith("sqlite:///"):
            Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        try:
            return optuna.storages.RDBStorage(url)
        except Exception as error:  # each database driver has its own exceptions
            raise ForetellError(f"{url}: cannot be opened as a storage: {str(error).splitlines()[0]}") from error
    from optuna.storages.journal import JournalFileBackend

    Path(url).parent.mkdir(parents=True, exist_ok=True)
    try:
        return optuna.storages.JournalStorage(JournalFileBackend(url))
    except (OSError, ValueError, KeyError) as error:
        raise ForetellError(f"{url}: cannot be opened as a storage: {error}") from error


@contextlib.contextmanager
def alone(url: str, folder: Path) -> Iterator[None]:
    """A context that one process at a time can enter, so that a study's tables and grid are created once."""
    file = url.removeprefix("sqlite:///").partition("?")[0]
    place = folder / "study" if "://" in file else Path(file)
    lock = FileLock(place.with_name(f".{place.name}.lock"))
    if not lock.acquire(OPEN_SECONDS):
        raise ForetellError(f"{url}: {lock.holder()} has been opening this study for long; stop it first")
    try:
        yield
    finally:
        lock.release()


def open_study(url: str, space: Space, folder: Path) -> optuna.Study:
    optuna = load_optuna()
    study = optuna.create_study(storage=open_storage(url), study_name=STUDY, direction="maximize", load_if_exists=True)
    asked = json.loads(json.dumps(space.to_json()))
    earlier = study.user_attrs.get("space")
    if earlier is None:
        study.set_user_attr("space", asked)
    elif earlier != asked:
        changed = [
            f"{part} {key}: {earlier[part].get(key)!r} then, {asked[part].get(key)!r} now"
            for part in ("fixed", "open")
            for key in sorted({*earlier[part], *asked[part]})
            if earlier[part].get(key) != asked[part].get(key)
        ]
        raise ForetellError(
            f"{url}: the study there is of another space ({'; '.join(changed)}); go on with that one, or choose another "
            f"folder than {folder} (`out=`) or another `storage=`"
        )
    return study


def enqueue_grid(study: optuna.Study, space: Space) -> None:
    known = {spelled(_setting(one, space)) for one in study.get_trials(deepcopy=False) if not interrupted(one)}
    for setting in space.settings():
        if spelled(setting) not in known:
            study.enqueue_trial({name: _encoded(value) for name, value in setting.items()})


def put_back_orphans(study: optuna.Study) -> None:
    """Queue the running trials again whose process on this machine has ended."""
    for one in study.get_trials(deepcopy=False):
        host, process = one.user_attrs.get(PROCESS, [None, None])
        if one.state.name == "RUNNING" and host == socket.gethostname() and not _alive(process):
            put_back(study, load_optuna().trial.Trial(study, one._trial_id))


def own_process() -> list[Any]:
    """Return host name and process id, which mark a running trial for `put_back_orphans`."""
    return [socket.gethostname(), os.getpid()]


def put_back(study: optuna.Study, trial: optuna.Trial) -> None:
    trial.set_user_attr("interrupted", True)
    study.tell(trial, state=load_optuna().trial.TrialState.FAIL)
    study.enqueue_trial(trial.params)


def _alive(process: Any) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # the process exists, but belongs to another user
        return True
    except (ProcessLookupError, TypeError):
        return False
    return True


def waiting(study: optuna.Study) -> int:
    """Return the number of queued trials."""
    return sum(one.state.name == "WAITING" for one in study.get_trials(deepcopy=False))


def interrupted(trial: Any) -> bool:
    return bool(trial.user_attrs.get("interrupted"))


def _setting(trial: Any, space: Space) -> Setting:
    params = trial.params or trial.system_attrs.get("fixed_params", {})
    return {name: _decoded(params[name], space.open[name]) for name in space.open if name in params}


def spelled(setting: Setting) -> str:
    return json.dumps(setting, sort_keys=True)


def _encoded(value: Any) -> Any:
    """Return a value that storages can keep: numbers and strings unchanged, other choices as JSON."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


def _decoded(value: Any, of: Choices | Range) -> Any:
    if isinstance(of, Choices):
        return next((one for one in of.values if _encoded(one) == value and type(_encoded(one)) is type(value)), value)
    return value


def suggested(trial: optuna.Trial, space: Space) -> Setting:
    setting: Setting = {}
    kind = space.kinds[0]
    if KIND in space.open:
        kind = setting[KIND] = trial.suggest_categorical(KIND, list(space.kinds))
    for name, one in space.relevant(str(kind)).items():
        if isinstance(one, Choices):
            setting[name] = _decoded(trial.suggest_categorical(name, [_encoded(value) for value in one.values]), one)
        elif one.whole:
            setting[name] = trial.suggest_int(name, int(one.low), int(one.high), step=int(one.step or 1), log=one.log)
        else:
            setting[name] = trial.suggest_float(name, one.low, one.high, step=one.step, log=one.log)
    return setting


def record_of(trial: Any) -> TrialRecord | None:
    """Return the record of a trial that has ended; None if it is queued, runs, or was put back."""
    if trial.state.name not in STATES or interrupted(trial):
        return None
    known = {field.name for field in fields(TrialRecord)}
    about = {"setting": dict(trial.params)} | trial.user_attrs.get(ABOUT, {})
    kept = {name: value for name, value in about.items() if name in known}
    return TrialRecord(trial.number, STATES[trial.state.name], **kept)


def finished(study: optuna.Study) -> list[TrialRecord]:
    """Return the records of the trials that have ended, in the order in which they began."""
    return [one for one in map(record_of, study.get_trials(deepcopy=False)) if one is not None]


def begun(study: optuna.Study) -> int:
    """Return the number of trials that have ended or are running."""
    return sum(one.state.name != "WAITING" and not interrupted(one) for one in study.get_trials(deepcopy=False))


def best_of(tried: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the best of the completely trained trials, the first of equals; None if there is none."""
    whole = [one for one in tried if one.state == "complete" and one.score is not None]
    return max(whole, key=lambda one: (one.score, -one.number), default=None)


def write_found(study: optuna.Study, space: Space, folder: Path) -> None:
    """Write the table of all trials, and the configuration of the best one."""
    tried = finished(study)
    with text_file(folder / TABLE) as file:
        file.writelines(json.dumps(asdict(one)) + "\n" for one in tried)
    best = best_of(tried)
    if best is not None:
        with text_file(folder / BEST) as file:
            file.write(f"# foretell train {BEST}\n")
            file.write(f"# Trial {best.number}, the best of {len(tried)}: {best.score:.4f} nats per event on dev.\n")
            file.write(to_toml(space.config(best.setting)))
