"""`:- table(user, from_log(buy, 1)).`: rows that training data have, and rows that a sequence brings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import foretell as ft
from foretell.ground.explain import why
from foretell.ground.given import with_log
from foretell.ground.replay import replay
from foretell.lang.diagnostics import ProgramError
from foretell.lang.load import parse
from foretell.lang.program import Program
from foretell.lang.source import Source
from foretell.lang.syntax import pretty
from foretell.reference.database import states
from tests.cli.invoking import fine, foretell
from tests.ground.clingo_states import clingo_states
from tests.ground.random_programs import random_case
from tests.ground.timelines import event_data, fact_of, names_at, proofs_at, timeline_of

SHOP = """
:- table(user, from_log(buy, 1)).
:- event(buy).
item(milk). item(tea).
buy(U, I) :- user(U), item(I).
bought(U) <- buy(U, _).
twice(U) <- buy(U, _), bought(U).
"""
TRAIN = event_data(["buy(u2,milk)", "buy(u1,tea)"], ["buy(u2,tea)"])
OTHER = event_data(["buy(u9,milk)", "buy(u1,tea)"], ["buy(u1,tea)"])


def test_values_of_training_are_rows_everywhere_and_others_in_their_sequence_alone() -> None:
    program = Program.from_text(SHOP)
    assert program.waits_for_log and program.tables[0].rows == []
    filled = with_log(program, TRAIN)
    assert filled.tables[0].rows == [("u1",), ("u2",)] and not filled.waits_for_log
    assert with_log(filled, OTHER) is filled
    first, second = replay(filled, OTHER).timelines
    users = [[name for name in names_at(one, 0) if name.startswith("user")] for one in (first, second)]
    assert users == [["user(u1)", "user(u2)", "user(u9)"], ["user(u1)", "user(u2)"]]
    assert "buy(u9,tea)" in names_at(first, 0) and "buy(u9,tea)" not in names_at(second, 1)


def test_a_replay_without_training_takes_what_it_is_given() -> None:
    first, second = replay(Program.from_text(SHOP), OTHER).timelines
    assert {"user(u1)", "user(u9)"} <= {*names_at(second, 0)} and names_at(first, 0) == names_at(second, 0)


def test_why_says_where_a_row_is_from() -> None:
    first, second = replay(with_log(Program.from_text(SHOP), TRAIN), OTHER).timelines
    assert "given with the sequence" in str(why(first, "user(u9)", 0)) and "unseen" not in str(
        why(first, "user(u9)", 0)
    )
    assert "a fact of the program" in str(why(first, "user(u2)", 0))
    assert "no row, and in no event of sequence s1" in str(why(second, "user(u9)", 1))


def test_rows_of_other_tables_of_the_functor_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "vip.csv").write_text("name\nu1\nu3\n")
    (tmp_path / "p.ndtt").write_text(
        f':- table(user, "vip.csv").\n:- table(user, from_log(sell, 2)).\n:- exogenous(sell).\n{SHOP}'
    )
    program = with_log(
        Program.from_file(tmp_path / "p.ndtt"), event_data(["buy(u2,milk)", "sell(x,u4)", "buy(u1,milk)", "sell(y,u2)"])
    )
    assert [one.rows for one in program.tables] == [[("u1",), ("u3",)], [("u2",), ("u4",)], []]


def test_programs_of_other_logs_are_other_programs_for_the_cache(tmp_path: Path) -> None:
    program = Program.from_text(SHOP)
    for log, wanted in ((TRAIN, "user(u2)"), (OTHER, "user(u9)")):
        timeline = replay(with_log(program, log), event_data(["buy(u1,tea)"]), cache=tmp_path).timelines[0]
        assert wanted in names_at(timeline, 0)


def test_a_kept_replay_is_not_that_of_a_sequence_with_other_rows(tmp_path: Path) -> None:
    """Sequences in processes and from disk bring what they bring here."""
    program = with_log(Program.from_text(SHOP), TRAIN)
    here = [names_at(one, 1) for one in replay(program, OTHER).timelines]
    for _ in range(2):
        assert [names_at(one, 1) for one in replay(program, OTHER, cache=tmp_path).timelines] == here


def _random(seed: int) -> tuple[Program, list[str]] | None:
    """A random program in which events say what is a static fact."""
    draw = random.Random(seed)
    case = random_case(seed, numbers=draw.random() < 0.5)
    functors = case.program.functors.values()
    static = [one.name for one in functors if one.name[0] == "s" and one.arity == 1]
    events = [one for one in functors if one.kind != "fact" and one.arity]
    if not static or not events:
        return None
    chosen, lines = draw.choice(static), case.text.splitlines()
    lines = [line for line in lines if draw.random() < 0.3 or not (line.startswith(f"{chosen}(") and "-" not in line)]
    for event in draw.choices(events, k=draw.choice([1, 1, 2])):
        line = f":- table({chosen}, from_log({event.name}, {draw.randint(1, event.arity or 1)}))."
        lines += [line] if line not in lines else []
    try:
        return Program.from_text("\n".join(lines)), case.events
    except ProgramError:
        return None


def _agree(seeds: range) -> int:
    used = 0
    for seed in seeds:
        made = _random(seed)
        if made is None:
            continue
        program, events = made
        program = with_log(program, event_data(events[: len(events) // 3]))
        sequences = [events, events[:3], events]
        timelines = replay(program, event_data(*sequences), impossible="exogenous").timelines
        for timeline, some in zip(timelines, sequences, strict=True):
            second = clingo_states(program, some)
            for number, state in enumerate(states(program, some)):
                found = {fact_of(timeline.grounding, fact) for fact in timeline.facts_at(number)}
                assert found == {one for one in state.facts if one[0] not in program.brought}, (seed, number)
                assert state.facts == second[number], (seed, number)
                proofs = {(one.rule, one.head, one.body, one.parameters) for one in state.proofs}
                assert set(proofs_at(timeline, number)) == proofs, (seed, number)
            used += bool(timeline.given)
    return used


@pytest.mark.parametrize("block", range(2))
def test_random_programs_agree_with_the_slow_twin_and_clingo(block: int) -> None:
    assert _agree(range(block * 40, (block + 1) * 40)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2, 25))
def test_a_thousand_random_programs_agree_with_the_slow_twin_and_clingo(block: int) -> None:
    assert _agree(range(block * 40, (block + 1) * 40)) > 5


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (":- table(user, from_log(buy, 0)). :- event(buy). buy(U) :- user(U).", "counted from 1"),
        (":- table(user, from_log(buy, U)). :- event(buy). buy(U) :- user(U).", "counted from 1"),
        (":- table(user, from_log(buy)). :- event(buy). buy(U) :- user(U).", "an event and a place"),
        (":- table(user, from_log(buy, 1), features(a)). :- event(buy). buy(U) :- user(U).", "no columns"),
        (":- table(user, from_log(buy, 2)). :- event(buy). buy(U) :- user(U).", "`buy/1` has 1 argument"),
        (":- table(user, from_log(by, 1)). :- event(buy). buy(U) :- user(U).", "did you mean `buy`"),
        (
            ":- table(user, from_log(buy, 1)). :- table(user, from_log(buy, 1)). :- event(buy). buy(U) :- user(U).",
            "already",
        ),
        (":- table(user, from_log(buy, 1)). :- event(buy). buy(U) :- user(U, U).", "argument"),
    ],
)
def test_declarations_that_cannot_be_meant_are_refused(text: str, part: str) -> None:
    with pytest.raises(ProgramError) as found:
        Program.from_text(text)
    assert part in str(found.value)


def test_it_is_written_as_it_was_read() -> None:
    text = ":- table('New user', from_log('Buy it', 2)).\n"
    assert pretty(parse(Source("p", text)).file) == text


def test_undeclared_events_have_values_too() -> None:
    program = Program.from_text(":- table(user, from_log(arrive, 1)). known(U) :- user(U).", undeclared="exogenous")
    timeline = replay(program, event_data(["arrive(u1)"])).timelines[0]
    assert "known(u1)" in names_at(timeline, 0) and not timeline.given


def test_a_promise_is_about_these_rows_too() -> None:
    program = with_log(Program.from_text(SHOP + ":- never(twice(U), user(U))."), TRAIN)
    found = replay(program, event_data(["buy(u9,milk)", "buy(u9,tea)"])).broken
    assert [one.state for one in found] == [3]


def test_commands_say_where_the_rows_are_from(tmp_path: Path) -> None:
    program, data = tmp_path / "p.ndtt", tmp_path / "d.jsonl"
    program.write_text(SHOP)
    data.write_text('{"times": [1.0, 2.0], "events": ["buy(u1,milk)", "buy(u2,tea)"], "t_end": 3.0}\n')
    checked = fine("check", program)
    assert (
        "1 table of what a log has" in checked.out
        and "from_log(buy, 1)" in checked.out
        and "of training" in checked.out
    )
    assert fine("check", program, "--json").json["tables"][0]["log"] == {"functor": "buy", "place": 1}
    for command in ("replay", "plan"):
        assert "user: 2 rows, from_log(buy, 1) of d" in fine(command, program, data).err, command
    assert "user: 2 rows" in fine("why", program, data, "user(u1)").err
    asked = ("params", "--program", program, "--dim", "2")
    alone, met = (fine(*asked, *more).json["parameters"] for more in ((), ("--data", data)))
    assert "deduce.user(u1).W" in met and "deduce.user(u1).W" not in alone and "deduce.user(milk).W" in alone
    wrong = foretell("check", _written(tmp_path, SHOP.replace("from_log(buy", "from_log(buyy")))
    assert wrong.code == 1 and "did you mean `buy`" in wrong.err


def _written(folder: Path, text: str) -> Path:
    (folder / "q.ndtt").write_text(text)
    return folder / "q.ndtt"


def test_python_says_what_the_rows_are() -> None:
    program = ft.Program.from_text(SHOP).with_log(["buy(bob,tea)", "buy(ann,milk)", "buy(bob,milk)"])
    assert program.tables[0].rows == [("ann",), ("bob",)]
    assert "user(ann)" in names_at(timeline_of(program, ["buy(ann,milk)"]), 0)
