"""Tests, and the lines of the library that they run: pytest's items one by one, and in forked processes with a limit of time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

PATIENCE = 10.0  # so many times as long by the clock: machines may be busy
LIBRARY = "/src/foretell/"
Lines = dict[str, list[int]]  # by file
Ran = dict[str, tuple[float, Lines]]  # test → its seconds, and the lines of the library that it ran


class InItems:
    """A pytest plugin: once tests are collected, `work` has them instead of the usual loop."""

    def __init__(self, work: Callable[[list[pytest.Item]], None]) -> None:
        self.work, self.failed, self.all_failed = work, "", set[str]()
        self.shared_fixtures = 0  # fixtures of a whole file or more that are being made

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.work(session.items)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid
            self.all_failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        shared = fixturedef.scope != "function"
        self.shared_fixtures += shared
        try:
            return (yield)
        finally:
            self.shared_fixtures -= shared

    def run(self, items: Sequence[pytest.Item], keep_on: bool = False, around: Any = contextlib.nullcontext) -> str:
        """The first that fails, or nothing."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            with around(item):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed and not keep_on:
                break
        return self.failed


def apart(work: Callable[[], Any], seconds: float) -> Any:
    """What `work` returns, as JSON from a forked process; None: it took so much of a processor's time, or crashed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        whole = math.ceil(seconds + sum(os.times()[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        with contextlib.suppress(BaseException):
            os.write(write, json.dumps(work()).encode())
        os._exit(0)
    os.close(write)
    text, end = b"", time.monotonic() + PATIENCE * seconds
    while (left := end - time.monotonic()) > 0.0 and select.select([read], [], [], left)[0]:
        part = os.read(read, 1 << 16)
        if not part:
            break
        text += part
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.close(read)
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def lines_run(plugin: InItems, items: Sequence[pytest.Item]) -> tuple[list[str], Ran]:
    """Every test once, unchanged: those that fail as it is, and which lines the others ran.

    What a fixture of a whole file runs counts for all tests of that file. Caches are emptied before each test, so that what one test
    had computed does not hide a line from the next.
    """
    found: dict[str, tuple[float, dict[str, set[int]]]] = {}
    of_fixtures: dict[str, dict[str, set[int]]] = {}  # by the tests' file

    @contextlib.contextmanager
    def around(item: pytest.Item) -> Iterator[None]:
        known: dict[str, set[int]] = {}
        shared = of_fixtures.setdefault(item.nodeid.split("::")[0], {})
        clear_caches()

        def each_line(frame: Any, event: str, argument: Any) -> Any:
            if event == "line":
                into = shared if plugin.shared_fixtures else known
                into.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
            return each_line

        def each_call(frame: Any, event: str, argument: Any) -> Any:
            return each_line if LIBRARY in frame.f_code.co_filename else None

        began = time.perf_counter()
        sys.settrace(each_call)
        yield
        sys.settrace(None)
        found[item.nodeid] = time.perf_counter() - began, known

    plugin.run(items, keep_on=True, around=around)
    ran = {
        test: (seconds, _by_file(known, of_fixtures[test.split("::")[0]])) for test, (seconds, known) in found.items()
    }
    return sorted(plugin.all_failed), {test: one for test, one in ran.items() if test not in plugin.all_failed}


def _by_file(*parts: dict[str, set[int]]) -> Lines:
    made: dict[str, set[int]] = {}
    for part in parts:
        for path, lines in part.items():
            made.setdefault(path.split(LIBRARY)[1].removesuffix(".py"), set()).update(lines)
    return {file: sorted(lines) for file, lines in made.items()}


def clear_caches() -> None:
    """Empty what `functools.cache` keeps of the library's functions."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "foretell":
            for one in list(vars(module).values()):
                if hasattr(one, "cache_clear"):
                    one.cache_clear()
