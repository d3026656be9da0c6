"""The code of worker processes: shards come in, results go out. Signals and the death of the parent process set a stop flag.

Shared inputs are kept between shards. Errors are returned as exceptions, or as text if they cannot be pickled.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import Any

from foretell.reading import ReadLimits, limits
from foretell.shards.pool import GRACE, ShardWork

KEPT = 4  # the largest number of shared inputs in memory

_flag = {"stop": False, "busy": False}
_kept: dict[str, Any] = {}


@dataclass(frozen=True)
class RaisedError:
    """The exception that was raised while a shard was computed."""

    error: Exception


def asked_to_stop() -> bool:
    return _flag["stop"]


def perform(work: ShardWork, key: str, packed: Callable[[], bytes | None], item: Any, given: ReadLimits) -> Any:
    """Return the result of one shard, or a `RaisedError`. `packed` returns the pickled shared input, which is used if it is not kept."""
    _flag["busy"] = True
    try:
        with limits(**vars(given)):
            return work(_shared(key, packed), item, asked_to_stop)
    except Exception as error:
        return RaisedError(_sendable(error))
    finally:
        _flag["busy"] = False


def _shared(key: str, packed: Callable[[], bytes | None]) -> Any:
    if key and key not in _kept:
        content = packed()
        assert content is not None, "the shared input was never sent"
        while len(_kept) >= KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = pickle.loads(content)
    return _kept.get(key)


def _sendable(error: Exception) -> Exception:
    try:
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    except Exception:
        logging.getLogger("foretell").debug("an error that cannot be sent", exc_info=True)
    return RuntimeError("".join(traceback.format_exception(error)))


# In a process of this machine


@dataclass(frozen=True)
class ProcessCall:
    """A shard in the form that is sent to a process."""

    work: ShardWork
    key: str
    packed: bytes | None
    item: Any
    limits: ReadLimits


def perform_call(call: ProcessCall) -> Any:
    return perform(call.work, call.key, lambda: call.packed, call.item, call.limits)


def begin_process() -> None:
    """Initialise a worker process: SIGINT, SIGTERM, and the end of its parent process set the stop flag."""
    os.dup2(2, 1)  # output of libraries goes to stderr, not into the command's stdout
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("foretell").setLevel(logging.ERROR)  # else each worker would repeat all warnings
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    threading.Thread(target=_watch_parent, daemon=True).start()


def _on_signal(number: int, frame: Any) -> None:
    _flag["stop"] = True


def _watch_parent() -> None:
    """Stop this worker when its parent is gone, after some time to write a checkpoint."""
    parent = parent_process()
    if parent is None:
        return
    connection.wait([parent.sentinel])
    _flag["stop"] = True
    until = time.monotonic() + GRACE
    while _flag["busy"] and time.monotonic() < until:
        time.sleep(0.1)
    os._exit(1)


# In a task of Ray


def perform_task(work: ShardWork, key: str, packed: list[Any], item: Any, given: ReadLimits) -> Any:
    """Compute a shard in a Ray worker; a cancelled task gets SIGINT. `packed` has a reference, so that its content is sent only once."""
    import ray

    before = signal.signal(signal.SIGINT, _on_signal)
    _flag["stop"] = False
    try:
        return perform(work, key, lambda: ray.get(packed[0]), item, given)
    finally:
        signal.signal(signal.SIGINT, before)
