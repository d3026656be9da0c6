"""A pool of Ray tasks, on this machine or on a cluster. If a worker or a node dies, only its own shards are lost."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from foretell.errors import ForetellError
from foretell.reading import read_limits
from foretell.shards.place import WorkPlace
from foretell.shards.pool import POLL, ShardOutcome, ShardTask
from foretell.shards.worker import RaisedError, perform_task

CONNECT_SECONDS = 10.0


def load_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # with Ray's default, 15, workers get no time on a shared machine
    try:
        import ray
    except ImportError:
        raise ForetellError(
            "`on=ray` needs Ray: pip install 'foretell[cluster]'; `on=processes` does without"
        ) from None
    return ray


class RayPool:
    """A pool with one Ray task per shard and core. Ray does not retry lost tasks; they are reported, and the caller decides."""

    interruptible = True

    def __init__(self, place: WorkPlace) -> None:
        self.ray = load_ray()
        self.place = place
        self.own = not self.ray.is_initialized()  # False if Ray was already initialised, by a notebook for example
        if self.own:
            _join(self.ray, place)
            _print_messages(self.ray, False)
        else:
            _check_joined(self.ray, place)
        self.tasks: dict[Any, ShardTask] = {}  # reference to the result → task
        self.sent: dict[str, Any] = {}  # key of a shared input → reference to it
        self.remote = self.ray.remote(perform_task)

    @property
    def size(self) -> int:
        return self.place.size or max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    @property
    def gpus(self) -> float:
        """The number of GPUs in the cluster."""
        return float(self.ray.cluster_resources().get("GPU", 0.0))

    def busy(self) -> list[Any]:
        return [task.name for task in self.tasks.values()]

    def start(self, task: ShardTask) -> None:
        shared, given = task.shared, []
        if shared.key:
            if shared.key not in self.sent:
                self.sent[shared.key] = self.ray.put(shared.packed)
            given = [self.sent[shared.key]]
        how = {"num_cpus": 1, "num_gpus": task.gpu, "max_retries": 0, "scheduling_strategy": "SPREAD"}
        reference = self.remote.options(**how).remote(task.work, shared.key, given, task.item, read_limits())
        self.tasks[reference] = task

    def wait(self, seconds: float = POLL) -> list[ShardOutcome]:
        if not self.tasks:
            return []
        waited = list(self.tasks)
        ready, _ = self.ray.wait(waited, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self.ray.wait(waited, num_returns=len(waited), timeout=0)
        return [self._ended(reference) for reference in ready]

    def _ended(self, reference: Any) -> ShardOutcome:
        task, errors = self.tasks.pop(reference), self.ray.exceptions
        try:
            value = self.ray.get(reference)
        except errors.TaskCancelledError:
            return ShardOutcome(task.name, cancelled=True)
        except errors.RayTaskError as error:  # the call itself failed, perhaps without foretell there
            raise ForetellError(
                f"Ray's workers cannot do the work; is this foretell installed there? {_last(error)}"
            ) from error
        except errors.RayError as error:
            return ShardOutcome(task.name, lost=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
        if isinstance(value, RaisedError):
            return ShardOutcome(task.name, error=value.error)
        return ShardOutcome(task.name, value)

    def interrupt(self) -> None:
        for reference in self.tasks:
            self.ray.cancel(reference, force=False)

    def close(self, *, now: bool = False) -> None:
        if now:
            for reference in self.tasks:
                self.ray.cancel(reference, force=True)
        self.tasks, self.sent = {}, {}
        if self.own and self.ray.is_initialized():
            self.ray.shutdown()
            _print_messages(self.ray, True)


def _check_joined(ray: Any, place: WorkPlace) -> None:
    """Raise an error if Ray is connected to another cluster than the requested one."""
    if place.address is None or place.address == "auto":
        return
    _check_reachable(place)
    joined = ray.get_runtime_context().gcs_address
    if not place.address.startswith("ray://") and place.address != joined:
        raise ForetellError(
            f"`on={place}`: this process has joined the Ray cluster at {joined}; call ray.shutdown() first"
        )


def _join(ray: Any, place: WorkPlace) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if place.address is None:
        quiet |= {"num_cpus": place.cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    elif place.address != "auto":
        _check_reachable(place)
    with _own_signals():
        try:
            ray.init(address=place.address or "local", **quiet)
        except (
            ConnectionError,
            RuntimeError,
            ValueError,
            TimeoutError,
            ImportError,
            ray.exceptions.RayError,
        ) as error:
            where = place.address or "this machine"
            token = place.address is not None and os.environ.get("RAY_AUTH_MODE") != "token"
            hint = "; a cluster with a token needs RAY_AUTH_MODE=token, and its token, here, too" if token else ""
            raise ForetellError(f"`on=ray`: {where} cannot be joined: {_last(error)}{hint}") from error


def _print_messages(ray: Any, shown: bool) -> None:
    """Turn Ray's messages about nodes on or off: they would appear in the command's stdout, and lost shards are reported anyway."""
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "_worker_logs_enabled"):
        worker._worker_logs_enabled = shown


def _check_reachable(place: WorkPlace) -> None:
    """Raise an error at once if the cluster cannot be reached, since Ray would retry for minutes."""
    assert place.address is not None
    host, _, port = place.address.removeprefix("ray://").partition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ForetellError(f"`on={place}`: nothing answers there ({error}); is the cluster up?") from None


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Context manager that restores the signal handlers, because joining Ray replaces the one for SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1][:300] if lines else type(error).__name__
