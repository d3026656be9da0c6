"""What happens in a worker process: shards come in, results go out; signals, and the death of whoever asked, become a flag.

The shared input of a work is kept from shard to shard. Errors go back as they are, or as text where they cannot be sent.
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

KEPT = 4  # shared inputs at a time

_flag = {"stop": False, "busy": False}
_kept: dict[str, Any] = {}


@dataclass(frozen=True)
class RaisedError:
    """The work on a shard raised this."""

    error: Exception


def asked_to_stop() -> bool:
    return _flag["stop"]


def perform(work: ShardWork, key: str, packed: Callable[[], bytes | None], item: Any, given: ReadLimits) -> Any:
    """The result of one shard, or the error it raised; `packed` gives the shared input where it has not come yet."""
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
    """A shard as it goes to a process."""

    work: ShardWork
    key: str
    packed: bytes | None
    item: Any
    limits: ReadLimits


def perform_call(call: ProcessCall) -> Any:
    return perform(call.work, call.key, lambda: call.packed, call.item, call.limits)


def begin_process() -> None:
    """At the start of a worker process: SIGINT and SIGTERM set the flag, and so does the end of the process that started it."""
    os.dup2(2, 1)  # what a library prints must not get between what the command prints
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("foretell").setLevel(logging.ERROR)  # each worker would repeat every warning
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    threading.Thread(target=_watch_parent, daemon=True).start()


def _on_signal(number: int, frame: Any) -> None:
    _flag["stop"] = True


def _watch_parent() -> None:
    """Stop orphaned workers, after they had time to write a checkpoint."""
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
    """A shard in a worker of Ray, which sends SIGINT when the task is cancelled; `packed` holds a reference, so that it comes once."""
    import ray

    before = signal.signal(signal.SIGINT, _on_signal)
    _flag["stop"] = False
    try:
        return perform(work, key, lambda: ray.get(packed[0]), item, given)
    finally:
        signal.signal(signal.SIGINT, before)
