"""The speed of replaying programs: `make bench-replay`, or `python benchmarks/replay.py [--data FOLDER] [--json FILE]`.

Cases: RoboCup, in events per second on one core; whether the cost of an event grows with unrelated facts, users, rules or past events; a
table of 100,000 facts; a program of 2,000 rules; and, if the folder has `iptv`, all its users merged into one stream. Results are CPU times
of this process, medians of repeats. Two workers are compared with one, on `iptv_small` and on shares of the users of `iptv`, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import foretell.data as data
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.ground.chunk import ReplayOptions, SequenceReplay, facts_of_kinds, replay_chunk
from foretell.ground.engine import Engine
from foretell.ground.replay import replay
from foretell.lang.program import Program
from foretell.terms import build, constant

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 5


def cpu(function, repeats: int = REPEATS) -> float:
    """Return the median of CPU seconds."""
    took = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        took.append(time.process_time() - start)
    return statistics.median(took)


def robocup() -> dict:
    program = Program.named("robocup")
    splits = list(data.load("robocup").splits().values())
    events = sum(split.event_count for split in splits)
    seconds = cpu(lambda: [replay(program, split) for split in splits])
    return {"events": events, "events_a_second": round(events / seconds)}


CLUB = """
:- event(enter). :- event(leave). :- event(talk). :- exogenous(ban).
enter(P) :- guest(P), not inside(P), not banned(P).
leave(P) :- inside(P).
talk(P,Q) :- inside(P), inside(Q), friend(P,Q).
inside(P) <- enter(P).
!inside(P) <- leave(P).
banned(P) <- ban(P).
!inside(P) <- ban(P).
guest(P) <- talk(P,Q), inside(Q).
knows(P,Q) <- talk(P,Q).
circle(P,Q) :- knows(P,Q), inside(Q).
circle(P,R) :- circle(P,Q), knows(Q,R), inside(R), P != R.
"""


def club_stream(length: int, guests: int, seed: int = 0) -> EventData:
    """Return a stream in which few guests are inside at a time; it has the same people whatever else the program contains."""
    draw = np.random.default_rng(seed)
    inside: list[int] = []
    names: dict[str, int] = {}
    kinds = []
    for _ in range(length):
        talkers = [g for g in inside if (g + 1) % guests in inside]
        outside = [g for g in range(guests) if g not in inside]
        if talkers and draw.random() < 0.5:
            who = int(draw.choice(talkers))
            name = f"talk(g{who},g{(who + 1) % guests})"
        elif len(inside) < 6 and outside:
            who = int(draw.choice(outside))
            inside.append(who)
            name = f"enter(g{who})"
        else:
            who = inside.pop(int(draw.integers(len(inside))))
            name = f"leave(g{who})"
        kinds.append(names.setdefault(name, len(names)))
    times = np.arange(1.0, length + 1)
    return EventData(
        [EventSequence(times, np.asarray(kinds, dtype=np.int32), length + 1.0, "club")], Vocabulary(tuple(names))
    )


def growth() -> dict:
    """Return the ratio of CPU times of the same events with ten times as much unrelated content and with little; measured in turns."""
    events = club_stream(4000, 20)
    sizes = {"plain": (20, 10, 100), "facts": (20, 10, 1000), "users": (200, 10, 100), "rules": (20, 100, 100)}
    # Friendships among the first twenty guests do not depend on the number of guests, so the stream stays possible.
    programs = {name: Engine(_widened(*size)) for name, size in sizes.items()}
    took: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(REPEATS + 2):
        for name, engine in programs.items():
            took[name].append(cpu(lambda engine=engine: replay_chunk(engine, events, ReplayOptions()), 1))
    medians = {name: statistics.median(times[1:]) for name, times in took.items()}
    return {name: round(medians[name] / medians["plain"], 2) for name in ("facts", "users", "rules")}


def _widened(guests: int, rules: int, facts: int) -> Program:
    lines = [CLUB, *(f"guest(g{g}). friend(g{g},g{(g + 1) % 20})." for g in range(20))]
    lines += [f"guest(g{g}). friend(g{g},g{g + 1})." for g in range(20, guests)]
    lines += [f"thing(t{fact})." for fact in range(facts)]
    for rule in range(rules):
        lines.append(f"noted{rule}(P) <- talk(P,x{rule}), guest(P).")  # the same event with another constant
        lines.append(f"mood{rule}(P) :- inside(P), special{rule}(P).\nspecial{rule}(y{rule}).")
        lines.append(f":- exogenous(alarm{rule}).\nalarmed{rule} <- alarm{rule}.")
    return Program.from_text("\n".join(lines))


def long_past() -> float:
    """Return the ratio of an event's cost in the last third of a long sequence to that in its second tenth."""
    program, data = _widened(20, 10, 100), club_stream(60_000, 20)
    kinds = np.asarray(data[0].types).tolist()
    ratios = []
    for _ in range(REPEATS):
        engine = Engine(program)
        fact_of, walk = facts_of_kinds(engine, data.vocabulary.names), SequenceReplay(engine)
        blocks = []
        for block in range(30):
            start = time.process_time()
            for place in range(block * 2000, (block + 1) * 2000):
                walk.take(fact_of(kinds[place]), place, True)
            blocks.append(time.process_time() - start)
        ratios.append(statistics.median(blocks[20:]) / statistics.median(blocks[3:6]))
    return round(statistics.median(ratios), 2)


def big_table() -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "likes.csv"
        rows = "".join(f"person{i},item{i % 977}\n" for i in range(100_000))
        path.write_text("who,what\n" + rows)
        text = ':- table(likes, "likes.csv").\n:- event(buy).\nbuy(P,I) :- likes(P,I).\n'
        return round(cpu(lambda: Program.from_text(text, folder=folder), 3), 2)


def many_rules() -> float:
    rules = [":- event(e0). :- exogenous(x).", "s(a). s(b)."]
    for i in range(2000):
        rules.append(f"e{i + 1}(X) :- {'e' + str(i) + '(X)' if i else 's(X)'}, s(X), not t{i}(X).")
        rules.append(f"t{i}(X) <- x(X), s(X).")
    text = "\n".join(rules[:2002]).replace(":- event(e0). ", "")
    return round(cpu(lambda: Program.from_text(text), 3), 2)


def iptv_users(folder: Path) -> tuple[Program, EventData]:
    """Return a sequence of watch(U,C) events per user, and a program for them."""
    train = data.load(str(folder / "iptv")).train
    assert train is not None
    categories = train.vocabulary.names
    users = [str(sequence.metadata["user"]) for sequence in train]
    names = tuple(build("watch", [user, category]) for user in users for category in categories)
    sequences = [
        replace(one, types=(len(categories) * place + np.asarray(one.types)).astype(np.int32))
        for place, one in enumerate(train)
    ]
    lines = [":- event(watch).", *(f"user({user})." for user in users)]
    for place, category in enumerate(categories):
        name = constant(category)
        lines += [f"category({name}).", f"tag({name},t{place % 4}).", f"topic(t{place % 4})."]
    lines += [
        "watch(U,C) :- user(U), category(C).",
        "user(U) <- watch(U,C), category(C).",
        "category(C) <- watch(U,C), user(U).",
        "topic(T) <- watch(U,C), tag(C,T).",
    ]
    return Program.from_text("\n".join(dict.fromkeys(lines))), EventData(sequences, Vocabulary(names))


def iptv(folder: Path) -> dict:
    """Replay all users in one stream, ordered by time."""
    program, users = iptv_users(folder)
    times = np.concatenate([sequence.times for sequence in users])
    kinds = np.concatenate([np.asarray(sequence.types) for sequence in users])
    order = np.argsort(times, kind="stable")
    stream = EventSequence(times[order], kinds[order], float(times.max()), "all")
    merged = EventData([stream], users.vocabulary)
    start = time.process_time()
    done = replay(program, merged)
    seconds = time.process_time() - start
    return {
        "events": len(stream),
        "seconds": round(seconds, 1),
        "additions": len(done.timelines[0].additions),
        "peak_MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def two_workers(folder: Path) -> dict:
    """Return the seconds of one worker and of two, in the order of measurement: wall time, and CPU time on the critical path.

    The critical path is the CPU time of this process plus an equal share of that of its workers: the wall time on idle cores.
    """
    small = data.load(str(folder / "iptv_small")).train
    assert small is not None
    cases = {"iptv_small": (Program.from_file(ROOT / "programs" / "iptv.ndtt"), small)}
    program, users = iptv_users(folder)
    for share in (8, 2):
        cases[f"iptv, 1/{share} of the users"] = program, users.select(range(len(users) // share))
    found = {}
    for name, (rules, some) in cases.items():
        clock: dict[int, list[float]] = {1: [], 2: []}
        way: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(REPEATS):
            for workers in clock:
                start, own, others = time.perf_counter(), *_cpu_seconds()
                replay(rules, some, workers=workers)
                now_own, now_others = _cpu_seconds()
                clock[workers].append(round(time.perf_counter() - start, 3))
                way[workers].append(round(now_own - own + (now_others - others) / workers, 3))
        found[name] = {"events": some.event_count}
        for what, took in (("clock", clock), ("longest way", way)):
            ratio = statistics.median(took[2]) / statistics.median(took[1])
            found[name][what] = {"one": took[1], "two": took[2], "ratio": round(ratio, 2)}
    return found


def _cpu_seconds() -> tuple[float, float]:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, others = (one.ru_utime + one.ru_stime for one in used)
    return own, others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with iptv/, for the large stream")
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--only", metavar="STEP", help="one step, by its name in the results")
    given = parser.parse_args()
    results: dict[str, object] = {"machine": platform.machine(), "python": platform.python_version()}
    steps = {
        "robocup": robocup,
        "cost of an event, ten times the unrelated": growth,
        "cost of an event, late over early": long_past,
        "table of 100,000 facts, seconds": big_table,
        "2,000 rules, seconds": many_rules,
    }
    if given.data is not None and (given.data / "iptv").is_dir():
        steps["iptv in one stream"] = lambda: iptv(given.data)
    if given.data is not None and (given.data / "iptv_small").is_dir():
        steps["two workers against one"] = lambda: two_workers(given.data)
    if given.only:
        steps = {given.only: steps[given.only]}
    for name, step in steps.items():
        results["load at the start"] = results.get("load at the start", round(os.getloadavg()[0], 2))
        results[name] = step()
        sys.stdout.write(f"{name}: {results[name]}\n")
        sys.stdout.flush()
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
