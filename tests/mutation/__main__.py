"""Are the tests any good? Small mistakes in functions, one at a time, each with the tests that run that function.

    python -m tests.mutation --out mutants.json              # the files that decide, all mutants
    python -m tests.mutation --only findings bootstrap       # some of them
    python -m tests.mutation --table mutants.json            # how many of each file were seen
    python -m tests.mutation --sample 300 --tests tests/nn tests/models  # at random from all other files that these tests run

A mutant is a function's code with one operator, number or condition changed (`operators.py`). Tests are collected once; a mutant is a
forked process in which the function's code is exchanged, so that whoever imported it has the changed one; the tests that run the changed
statement run, the quickest first, until one fails. A test that takes too long has failed. Which tests run which line is found by running
them all once. Mutants that `--out` has already are not tried again. Those that change nothing are listed, with their reasons, in
`equivalent.toml`.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import inspect
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutation.operators import Mutant, mutants_of, statement_lines
from tests.mutation.running import InItems, Ran, apart, lines_run

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
DECIDING = {
    "reproduce/findings": ["tests/reproduce/test_findings.py", "tests/reproduce/test_published.py"],
    "reproduce/model_difference": ["tests/reproduce/test_model_difference.py", "tests/reproduce/test_findings.py"],
    "reproduce/comparison": [
        *(
            "tests/reproduce/test_comparison.py",
            "tests/reproduce/test_findings.py",
            "tests/reproduce/test_published.py",
        ),
    ],
    "reproduce/rows": ["tests/reproduce/test_rows.py", "tests/reproduce/test_findings.py"],
    "evaluate/compare": ["tests/evaluate/test_differences.py", "tests/evaluate/test_compare.py"],
    "evaluate/permutation": ["tests/evaluate/test_permutation.py"],
    "evaluate/bootstrap": ["tests/evaluate/test_bootstrap.py"],
    "evaluate/likelihood": [
        *(
            "tests/evaluate/test_integral_parts.py",
            "tests/evaluate/test_likelihood.py",
            "tests/objective/test_integral.py",
        ),
        *(
            "tests/evaluate/test_open_vocabulary.py",
            "tests/evaluate/test_in_shards.py",
            "tests/train/test_carried_state.py",
        ),
    ],
    "objective/loglik": [
        *("tests/objective/test_loglik.py", "tests/objective/test_integral.py", "tests/models/test_rmtpp_twin.py"),
    ],
    "train/trainer": ["tests/train/test_early_stopping.py", "tests/train/test_regularisation.py"],
}
SKIPPED_FUNCTIONS = {
    "reproduce/comparison": ("draw_scores",),  # a picture
    # what is not early stopping: the optimiser's gradients, callbacks, signals, files
    "train/trainer": (
        *("Adam.clear", "Adam.finish", "Adam.set_lr", "Adam.start", "CallbackList", "stopping", "Trainer._checkpoint"),
        *("Trainer.__init__", "check_data", "changed_options", "choose_device"),
    ),
}
SECONDS, TIMES = (
    10.0,
    4.0,
)  # a mutant's limit of processor time: so much, and so many times what its tests take unchanged
HOUR = 3600.0


@dataclass(frozen=True)
class Trial:
    file: str
    mutant: Mutant
    fate: str  # "killed", "survived", "not run" (no test runs the statement), "equivalent"
    by: str = ""

    @classmethod
    def read(cls, cells: list[Any]) -> Trial:
        file, *mutant, fate, by = cells
        return cls(
            file, Mutant(*mutant), "survived" if fate == "equivalent" else fate, "" if fate == "equivalent" else by
        )

    def told(self) -> str:
        one = self.mutant
        return f"{self.fate:10}  {self.file}:{one.line} {one.function} #{one.number}: {one.what}  {self.by}"


def functions_of(file: str) -> list[tuple[str, ast.FunctionDef]]:
    """Outermost functions and methods, with their qualified names."""
    tree = ast.parse((ROOT / "src" / "foretell" / f"{file}.py").read_text(encoding="utf-8"))
    found: list[tuple[str, ast.FunctionDef]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            found += [(f"{node.name}.{one.name}", one) for one in node.body if isinstance(one, ast.FunctionDef)]
    skipped = SKIPPED_FUNCTIONS.get(file, ())
    return [one for one in found if one[0] not in skipped and one[0].split(".")[0] not in skipped]


def raw_function(file: str, name: str) -> FunctionType | None:
    """The function object whose code is run, under whatever decorators."""
    found = importlib.import_module(f"foretell.{file.replace('/', '.')}")
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    for attribute in ("fget", "func", "__func__"):
        found = getattr(found, attribute, found) if not isinstance(found, FunctionType) else found
    found = inspect.unwrap(found) if callable(found) else found
    return found if isinstance(found, FunctionType) else None


def code_of(tree: ast.AST, file: str, name: str, like: CodeType) -> CodeType:
    """The code of a changed function: compiled in its class, if it has one, for `super()` and private names."""
    body: ast.stmt = tree  # pyright: ignore[reportAssignmentType]
    assert isinstance(body, ast.FunctionDef)
    body.decorator_list = []
    if "." in name:
        body = ast.ClassDef(name.split(".")[0], bases=[], keywords=[], body=[body], decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([ast.parse("from __future__ import annotations").body[0], body], []))
    pending = [compile(module, str(ROOT / "src" / "foretell" / f"{file}.py"), "exec")]
    while pending:
        code = pending.pop()
        if code.co_qualname == name:
            assert code.co_freevars == like.co_freevars, (name, code.co_freevars)
            return code
        pending += [one for one in code.co_consts if isinstance(one, CodeType)]
    raise AssertionError(name)


def try_mutants(
    file: str, items: Sequence[pytest.Item], ran: Ran, plugin: InItems, skip: Callable[[Mutant], bool]
) -> Iterator[Trial]:
    """`items`: the tests, the quickest first; one that has killed a mutant of a function is asked first for the next."""
    lines = {item.nodeid: set(ran[item.nodeid][1].get(file, ())) for item in items}
    for name, function in functions_of(file):
        original, asked = raw_function(file, name), list(items)
        for mutant, tree in mutants_of(function, name):
            if skip(mutant) or original is None:
                continue
            place = statement_lines(function, mutant.line)
            tests = [item for item in asked if not lines[item.nodeid].isdisjoint(place)]
            if not tests:
                yield Trial(file, mutant, "not run")
                continue
            code = code_of(tree, file, name, original.__code__)

            def work(
                code: CodeType = code, original: FunctionType = original, tests: Sequence[pytest.Item] = tests
            ) -> str:
                original.__code__ = code
                return plugin.run(tests)

            found = apart(work, SECONDS + TIMES * sum(ran[item.nodeid][0] for item in tests))
            yield Trial(
                file,
                mutant,
                "survived" if found == "" else "killed",
                "took too long, or crashed" if found is None else found,
            )
            asked.sort(key=lambda item: item.nodeid != found)


def equivalents() -> dict[tuple[str, str, str, int], str]:
    """By file, function, what is changed, and which of these in the function it is."""
    table = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8"))
    return {
        (one["file"], one["function"], one["what"], one.get("nth", 0)): one["why"] for one in table.get("mutant", ())
    }


def with_equivalents(trials: list[Trial]) -> list[Trial]:
    known, made = equivalents(), []
    for one in trials:
        why = None
        if one.fate == "survived":
            tree = dict(functions_of(one.file))[one.mutant.function]
            alike = [
                other.number for other, _ in mutants_of(tree, one.mutant.function) if other.what == one.mutant.what
            ]
            why = known.get((one.file, one.mutant.function, one.mutant.what, alike.index(one.mutant.number)))
        made.append(one if why is None else Trial(one.file, one.mutant, "equivalent", why))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of files")
    parser.add_argument(
        "--sample", type=int, default=0, help="so many random mutants of all other files that the tests run"
    )
    parser.add_argument("--tests", nargs="*", default=["tests"], help="with --sample: the tests")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long; the same command goes on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the mutants, at random; a larger share has all of a smaller one"
    )
    parser.add_argument(
        "--map", default="", help="a JSON file of which tests run which line; made where it is not there"
    )
    parser.add_argument("--out", default="", help="a JSON file for the results")
    parser.add_argument("--merge", nargs="*", default=[], help="files of results: their trials become one, in --out")
    parser.add_argument("--table", default="", help="a file of --merge: its table, as text")
    options = parser.parse_args()
    os.chdir(ROOT)
    if options.table or options.merge:
        if options.merge:
            Path(options.out).write_text(
                json.dumps(merged(map(Path, options.merge)), indent=1) + "\n", encoding="utf-8"
            )
        sys.stdout.write(table_of(json.loads(Path(options.table or options.out).read_text(encoding="utf-8"))))
        return
    files = {
        file: tests for file, tests in DECIDING.items() if not options.only or any(o in file for o in options.only)
    }
    wanted = (
        options.tests if options.sample else list(dict.fromkeys(test for tests in files.values() for test in tests))
    )
    plugin = InItems(lambda items: run_all(items, plugin, options, files))
    quiet = ("xdist", "cacheprovider", "anyio", "trio", "randomly")
    pytest.main(  # nobody reads how a test failed
        [
            "-q",
            "-s",
            "--no-header",
            "--tb=no",
            "--assert=plain",
            *(part for name in quiet for part in ("-p", f"no:{name}")),
            *wanted,
        ],
        plugins=[plugin],
    )


def run_all(
    items: list[pytest.Item], plugin: InItems, options: argparse.Namespace, files: dict[str, list[str]]
) -> None:
    end = time.monotonic() + (60.0 * options.minutes or math.inf)
    map_file = Path(options.map) if options.map else None
    if map_file and map_file.exists():
        ran: Ran = json.loads(map_file.read_text())
    else:
        answer = apart(lambda: lines_run(plugin, items), HOUR)
        assert answer is not None, "the tests crashed without any mutant"
        failing, ran = answer
        if failing:
            tell(f"left out, as they fail without any mutant: {', '.join(failing)}")
        if map_file:
            map_file.write_text(json.dumps(ran))
    items = sorted((one for one in items if one.nodeid in ran), key=lambda item: ran[item.nodeid][0])
    if options.sample:
        seen = {file for _, found in ran.values() for file in found}
        files = {file: options.tests for file in sorted(seen - DECIDING.keys()) if "/__" not in f"/{file}"}
    everything = [
        (file, mutant) for file in files for name, tree in functions_of(file) for mutant, _ in mutants_of(tree, name)
    ]
    count = min(options.sample or math.ceil(options.share * len(everything)), len(everything))
    chosen = set(random.Random(0).sample(everything, len(everything))[:count])
    out = Path(options.out) if options.out else None
    trials = [Trial.read(one) for one in json.loads(out.read_text())["trials"]] if out and out.exists() else []
    done = {(one.file, one.mutant) for one in trials}
    tell(f"{len(items)} tests, {len(everything)} mutants, {count} to try, {len(done)} tried before")
    pending = [one for one in everything if one in chosen and one not in done]

    def work(job: int) -> Iterator[Trial]:
        mine = set(pending[job :: options.jobs])
        for file in files:
            its_tests = [one for one in items if one.nodeid.startswith(tuple(files[file]))]
            yield from try_mutants(file, its_tests, ran, plugin, lambda m, f=file: (f, m) not in mine)

    gc.freeze()  # forks share what there is until now
    trials += in_jobs(work, options.jobs, end)
    order = {one: place for place, one in enumerate(everything)}
    trials.sort(key=lambda one: order.get((one.file, one.mutant), -1))
    found = summary(with_equivalents(trials), len(everything))
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    tell(json.dumps({key: found[key] for key in ("mutants", "tried", "share_killed", "files")}, indent=1))


def in_jobs(work: Callable[[int], Iterator[Trial]], jobs: int, end: float) -> list[Trial]:
    """All trials of several processes, which stop when time is up."""
    parts = [Path(tempfile.mkstemp()[1]) for _ in range(jobs)]
    children = []
    for job, part in enumerate(parts):
        children.append(os.fork())
        if children[-1] == 0:
            with part.open("w") as file:
                for trial in work(job):
                    tell(trial.told())
                    file.write(json.dumps([trial.file, *astuple(trial.mutant), trial.fate, trial.by]) + "\n")
                    file.flush()
                    if time.monotonic() > end:
                        tell("time is up")
                        break
            os._exit(0)
    for child in children:
        os.waitpid(child, 0)
    found = [Trial.read(json.loads(line)) for part in parts for line in part.read_text().splitlines()]
    for part in parts:
        part.unlink()
    return found


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def merged(files: Iterable[Path]) -> dict[str, object]:
    """The trials of several files of results, the last one of each mutant that the code has, whatever line it has moved to.

    Functions whose code has changed in the meantime are to be tried again: this does not see it.
    """
    read = [Trial.read(one) for file in files for one in json.loads(file.read_text(encoding="utf-8"))["trials"]]
    there = {
        (file, mutant.function, mutant.number, mutant.what): mutant
        for file in DECIDING
        for name, tree in functions_of(file)
        for mutant, _ in mutants_of(tree, name)
    }
    last = {(one.file, one.mutant.function, one.mutant.number, one.mutant.what): one for one in read}
    trials = [replace(last[place], mutant=mutant) for place, mutant in there.items() if place in last]
    counts = {file: sum(place[0] == file for place in there) for file in DECIDING}
    return summary(with_equivalents(trials), len(there)) | {"mutants_of": counts}


def table_of(found: Mapping[str, Any]) -> str:
    """How many mutants of each file were tried and seen, as a table of Markdown."""
    rows = [["file", "mutants", "tried", "killed", "survived or not run", "equivalent", "killed of those that count"]]
    rows.append(["---"] * len(rows[0]))
    for file, mutants in found["mutants_of"].items():
        fates = [fate for one, *_, fate, _ in found["trials"] if one == file]
        killed, same = fates.count("killed"), fates.count("equivalent")
        share = f"{killed / (len(fates) - same):.1%}" if len(fates) > same else "–"
        counts = (mutants, len(fates), killed, len(fates) - killed - same, same)
        rows.append([f"`{file}`", *map(str, counts), share])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def summary(trials: list[Trial], mutants: int) -> dict[str, object]:
    by_file = {}
    for file in dict.fromkeys(one.file for one in trials):
        fates = [one.fate for one in trials if one.file == file]
        counted = len(fates) - fates.count("equivalent")
        share = fates.count("killed") / counted if counted else None
        by_file[file] = {fate: fates.count(fate) for fate in sorted(set(fates))} | {"share_killed": share}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    fates = [one.fate for one in trials]
    counted = len(fates) - fates.count("equivalent")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
        "python": platform.python_version(),
        "mutants": mutants,
        "tried": len(trials),
        "share_killed": fates.count("killed") / counted if counted else None,
        "files": by_file,
        "trials": [[one.file, *astuple(one.mutant), one.fate, one.by] for one in trials],
    }


if __name__ == "__main__":
    main()
