"""A small program and log for every construct of the language, and all the commands that read them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SPLITS = {"train": 6, "dev": 2, "test": 2}  # sequences


@dataclass(frozen=True)
class Construct:
    """A program, and a round of events that it makes possible; a log is such rounds with random gaps."""

    program: str
    events: tuple[str, ...]
    fact: str  # one to ask `why` about
    files: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()  # of JSON lines: numbers of events
    given: str = ""  # a fact of each sequence
    other: str = ""  # `--table` for a trained run


CONSTRUCTS = {
    "expiry": Construct(
        ":- exogenous(login).\n:- event(buy).\nsession(U) <- login(U) for 2.5.\nbuy(U) :- session(U).\n",
        ("login(u)", "buy(u)", "login(v)", "buy(v)"),
        "session(u)",
    ),
    "features": Construct(
        ':- event(buy).\n:- features(buy, amount).\n:- table(price, "price.csv", features(cost, weight)).\n'
        "buy(I) :- price(I).\nbuy(I) :- liked(I).\nliked(I) <- buy(I), price(I).\n",
        ("buy(milk)", "buy(bread)", "buy(milk)"),
        "liked(milk)",
        files={
            "price.csv": "item,cost,weight\nmilk,1.5,\nbread,2,0.5\n",
            "new.csv": "item,cost,weight\ntea,1,2\nmilk,2,3\nbread,1,1\n",
        },
        keys=("amount",),
        other="price=new.csv",
    ),
    "given": Construct(
        ":- given(age).\n:- event(visit).\nvisit(P) :- age(P, old) :: old.\nvisit(P) :- age(P, young) :: young.\n"
        "seen(P) <- visit(P).\nvisit(P) :- seen(P).\n",
        ("visit(p)",),
        "age(p,old)",
        given="age(p,old)",
    ),
    "comparisons": Construct(
        ":- event(move).\nlevel(1..4).\nmove(X, Y) :- level(X), level(Y), X < Y, Y <= 3.\n"
        "at(Y) <- move(X, Y), X >= 1.\nmove(Y, Z) :- at(Y), level(Z), Z != Y, Z > Y.\n",
        ("move(1,2)", "move(2,3)", "move(3,4)"),
        "at(3)",
    ),
    "counts": Construct(
        ":- event(checkout).\n:- event(put).\nuser(u). user(v). item(1..3).\nput(U, I) :- user(U), item(I), not cart(U, I).\n"
        "cart(U, I) <- put(U, I).\n!cart(U, I) <- checkout(U), cart(U, I).\n"
        "checkout(U) :- user(U), count(cart(U, _)) >= 2, min(cart(U, _)) < 2, max(cart(U, _)) > 1.\n",
        ("put(u,1)", "put(u,2)", "checkout(u)", "put(v,1)", "put(v,3)", "checkout(v)"),
        "checkout(u)",
    ),
    "from_log": Construct(
        ":- table(user, from_log(buy, 1)).\n:- table(item, from_log(buy, 2)).\n:- event(buy).\n"
        "buy(U, I) :- user(U), item(I) :: w(U).\nowns(U, I) <- buy(U, I).\nbuy(U, I) :- owns(U, I).\n",
        ("buy(u,milk)", "buy(v,tea)"),
        "user(u)",
        files={"new.csv": "user\nu\nv\nz\n"},
        other="user=new.csv",
    ),
    "short_forms": Construct(
        ":- event(step).\n:- exogenous(reset).\nedge(a, b; b, c). size(1..2).\n"
        "step(X, Y), open(X) :- edge(X, Y), size(1).\n!been(X), done(X) <- reset, been(X).\nbeen(X), at(X) <- step(X, Y).\n"
        "step(X, Y) :- at(X), edge(X, Y).\nstep(X, Y) :- done(X), edge(X, Y).\n",
        ("step(a,b)", "step(b,c)", "reset"),
        "done(a)",
    ),
    "never": Construct(
        ":- event(take).\n:- event(give).\nwho(p; q).\ntake(P) :- who(P), not taken.\ntaken :- has(_).\n"
        "has(P) <- take(P).\n!has(P) <- give(P).\ngive(P) :- has(P).\n:- never(has(P), has(Q), P != Q).\n",
        ("take(p)", "give(p)", "take(q)", "give(q)"),
        "has(q)",
    ),
    "two_arities": Construct(
        ":- exogenous(delay).\n:- event(arrive).\n:- embed(delayed/1, 3).\n:- embed(delayed/2, 2).\ntrain(t1; t2).\nreason(snow).\n"
        "delayed(T) <- delay(T, R), reason(R).\ndelayed(T, R) <- delay(T, R), reason(R).\n"
        "arrive(T) :- train(T), not delayed(T).\narrive(T) :- delayed(T, R), delayed(T) :: why(R).\n",
        ("arrive(t1)", "delay(t2,snow)", "arrive(t2)"),
        "delayed(t2,snow)",
    ),
}


def write_construct(name: str, folder: Path) -> Path:
    """The files of a construct; gives the program, beside the folder `log`."""
    one, draw = CONSTRUCTS[name], random.Random(name)
    for file, text in one.files.items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "log").mkdir()
    for split, count in SPLITS.items():
        lines = []
        for number in range(count):
            events = list(one.events) * 2
            times = [0.0]
            for _ in events:
                times.append(times[-1] + draw.uniform(0.2, 0.8))
            line = {"id": f"{split}{number}", "times": times[1:], "events": events, "t_end": times[-1] + 0.5}
            line |= {key: [draw.choice([None, draw.gauss(4.0, 2.0)]) for _ in events] for key in one.keys}
            lines.append(json.dumps(line | ({"facts": [one.given]} if one.given else {})))
        (folder / "log" / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    program = folder / "p.ndtt"
    program.write_text(one.program, encoding="utf-8")
    return program


def program_commands(name: str, folder: Path, models: tuple[str, ...]) -> Iterator[tuple[object, ...]]:
    """Commands for a program, alone or with a log."""
    one, program, log = CONSTRUCTS[name], folder / "p.ndtt", folder / "log"
    yield "check", program
    yield "check", program, "--json"
    yield "fmt", program
    yield "fmt", "--check", program
    yield "replay", program, log, "--no-cache"
    yield "replay", program, log, "--no-cache", "--json"
    yield "why", program, log, one.fact, "--split", "test", "--sequence", "test0"
    yield "plan", program, log
    for model in models:
        yield "params", "--program", program, "--model", model, "--dim", 3
        yield "params", "--program", program, "--data", log, "--model", model, "--dim", 3


def run_commands(name: str, folder: Path, model: str, *sizes: object) -> Iterator[tuple[object, ...]]:
    """A training of the construct's program, and commands for the run."""
    one, log, run = CONSTRUCTS[name], folder / "log", folder / f"run-{model}"
    test = log / "test.jsonl"
    columns = ("--covariates", ",".join(one.keys)) if one.keys else ()
    asked = ("--program", folder / "p.ndtt", "--model", model, "--epochs", 1, "--dim", 3, *columns, *sizes)
    yield "train", "--data", log, *asked, "--out", run, "--quiet", "--no-floors"
    yield "evaluate", run, "--no-times", "--json"
    yield "evaluate", run, test, "--downsample", 2
    yield "evaluate", run, test
    yield "predict", run, test, "--sequence", "test0"
    yield "predict", run, test, "--sequence", "test0", "--by", "samples", "--n", 20
    yield "sample", run, "--history", test, "--horizon", 2, "--n", 2, "--events", 20
    yield "explain", run, test, "--sequence", "test0", "--at", 1.2
    yield "intensity", run, test, "--at", 1.2
    yield "params", run
    yield "report", run, "--out", folder / f"{model}.html", "--no-floors"
    if one.other:
        yield "evaluate", run, test, "--no-times", "--table", one.other.replace("=", f"={folder}/")
        yield "sample", run, "--history", test, "--horizon", 2, "--table", one.other.replace("=", f"={folder}/")
