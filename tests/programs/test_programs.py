"""The programs that ship: checked, pictured, explained, and true to the situations they are about."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from foretell.data import EventData, load, load_file
from foretell.ground.replay import Replay, replay
from foretell.ground.timeline import Timeline
from foretell.lang.load import SHIPPED
from foretell.lang.load import names as shipped_names
from foretell.lang.program import Program
from foretell.terms import split
from tests.cli.invoking import fine

ROOT = Path(__file__).parents[2]
LISTED = ROOT / "programs"
FILES = {path.stem: path for folder in (LISTED, SHIPPED) for path in sorted(folder.glob("*.ndtt"))}
NAMES = sorted(FILES)
EXAMPLES = [name for name, path in FILES.items() if (path.parent / name / "example.jsonl").exists()]
IPTV = ROOT.parent / "shared/data/iptv_small"


def folder(name: str) -> Path:
    """With the program's tables, page, picture and example."""
    return FILES[name].parent / name


def program(name: str) -> Program:
    return Program.from_file(FILES[name])


def replayed(name: str, data: EventData | None = None) -> Replay:
    return replay(program(name), load_file(folder(name) / "example.jsonl") if data is None else data)


@dataclass(frozen=True)
class State:
    """Facts by functor, as tuples of arguments, possible events included; and the event that came next."""

    facts: dict[str, set[tuple[str, ...]]]
    possible: int
    following: str | None

    def __getitem__(self, functor: str) -> set[tuple[str, ...]]:
        return self.facts.get(functor, set())

    def pairs(self, functor: str) -> dict[str, str]:
        """Of a functor with two arguments: the second by the first."""
        return {first: second for first, second in self[functor]}


def states(timeline: Timeline) -> Iterator[State]:
    grounding = timeline.grounding
    for number, now in timeline.walk():
        facts: dict[str, set[tuple[str, ...]]] = {}
        for fact in now:
            functor, args = split(grounding.text(fact))
            facts.setdefault(functor, set()).add(tuple(args))
        following = timeline.after(number + 1) if number + 1 < timeline.states else None
        yield State(facts, sum(map(grounding.is_event, now)), following)


def all_states(done: Replay) -> Iterator[State]:
    for timeline in done.timelines:
        yield from states(timeline)


# --- Every program -------------------------------------------------------------------------------------------------


def test_the_promised_programs_are_there():
    assert {"forum-small", "forum", "email", "robocup", "iptv", "library"} <= set(NAMES)
    assert set(NAMES) - {"robocup"} == set(EXAMPLES), "robocup has embedded data; the others bring an example"
    assert shipped_names() == ("robocup",)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_has_no_mistakes_and_no_warnings(name: str):
    assert program(name).warnings == ()
    assert fine("check", FILES[name]).err == ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_replays_and_has_every_kind_of_event(name: str):
    done = replayed(name)
    happened = {
        split(timeline.grounding.text(fact))[0] for timeline in done.timelines for fact in timeline.events.tolist()
    }
    declared = {one.name for one in program(name).functors.values() if one.kind != "fact"}
    assert happened == declared and done.impossible == done.undeclared == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_that_of_the_program(name: str, tmp_path: Path):
    fine("check", FILES[name], "--plot", tmp_path / "graph.svg")
    shipped = folder(name) / "graph.svg"
    assert shipped.read_text(encoding="utf-8") == (tmp_path / "graph.svg").read_text(encoding="utf-8"), (
        f"foretell check {FILES[name]} --graph {shipped}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_the_picture_links_to_what_is_there_and_stands_in_the_list(name: str):
    page = (folder(name) / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)\)", page)
    assert "graph.svg" in links and f"../{name}.ndtt" in links
    assert all((folder(name) / link).exists() for link in links)
    listed = re.findall(r"\]\(([^)\s]+/README\.md)\)", (LISTED / "README.md").read_text(encoding="utf-8"))
    assert (folder(name) / "README.md").resolve() in [(LISTED / link).resolve() for link in listed]


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_number_that_a_page_names_is_in_the_picture(name: str):
    page = (folder(name) / "README.md").read_text(encoding="utf-8")
    told = {int(number) for number in re.findall(r"[Rr]ules? (\d+)", page) + re.findall(r"\((\d+)\)", page)}
    numbers = {one.number for one in program(name).rules if not one.rule.is_fact}
    assert told and told <= numbers


# --- RoboCup -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def games() -> list[State]:
    done = [replayed("robocup", part) for part in load("robocup").splits().values()]
    assert sum(len(one.timelines) for one in done) == 4 and not any(one.impossible for one in done)
    return [state for one in done for state in all_states(one)]


def test_robocup_has_45_possible_events_with_a_possessor_and_22_without(games: list[State]):
    assert {(len(state["has_ball"]), state.possible) for state in games} == {(1, 45), (0, 22)}


def test_robocup_lets_the_possessor_act_and_anyone_restart(games: list[State]):
    for state in games:
        assert len(state["kickoff"]) == 22
        holders = state["has_ball"]
        assert state["kick"] == state["goal"] == holders
        assert {(giver,) for giver, _ in state["pass"]} == {(victim,) for _, victim in state["steal"]} == holders
        assert (len(state["pass"]), len(state["steal"])) == ((10, 11) if holders else (0, 0))


def test_robocup_passes_stay_in_a_team_and_steals_do_not(games: list[State]):
    for state in games:
        team = state.pairs("plays_for")
        assert all(team[giver] == team[taker] for giver, taker in state["pass"])
        assert all(team[thief] != team[victim] for thief, victim in state["steal"])


def test_robocup_names_the_team_that_kicks_off_after_a_goal(games: list[State]):
    due = [(state["restarts"], state.following, state.pairs("plays_for")) for state in games if state["restarts"]]
    assert Counter(len(teams) for teams, _, _ in due) == {1: 23}
    for teams, event, team in due:
        if event is not None:  # the last goal of a game may be its end
            functor, (player,) = split(event)
            assert functor == "kickoff" and teams == {(team[player],)}


def test_robocup_facts_that_are_only_true_or_false_have_no_dimension():
    functors = program("robocup").functors
    assert {one.name for one in functors.values() if one.dim == 0} == {"plays_for", "loose", "restarts"}
    assert all(one.dim is None for one in functors.values() if one.name not in ("plays_for", "loose", "restarts"))


def test_robocup_knows_exactly_the_528_types_of_the_data():
    types = set(load("robocup").vocabulary.names)
    checked = program("robocup")
    team = {player: team for player, team in checked.tables[0].rows}
    made = {f"{one}({player})" for one in ("kickoff", "kick", "goal") for player in team}
    made |= {f"pass({a},{b})" for a in team for b in team if a != b and team[a] == team[b]}
    made |= {f"steal({a},{b})" for a in team for b in team if team[a] != team[b]}
    assert made == types and len(types) == 528


# --- IPTV ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not IPTV.exists(), reason="the IPTV data are not beside the repository")
def test_iptv_makes_every_event_of_the_data_possible_at_any_time():
    checked = program("iptv")
    for part in load(IPTV).splits().values():
        done = replay(checked, part)
        assert done.impossible == done.undeclared == 0
        always = done.timelines[0].grounding.always.tolist()
        watchable = {
            done.timelines[0].grounding.text(fact) for fact in always if done.timelines[0].grounding.is_event(fact)
        }
        assert watchable == set(part.vocabulary.names) and len(watchable) == 320


def test_iptv_watching_moves_the_user_the_category_and_its_tags_and_nothing_else():
    timeline = replayed("iptv").timelines[0]
    grounding = timeline.grounding
    tags = {
        tag
        for category, tag in next(one.rows for one in program("iptv").tables if one.functor == "has_tag")
        if category == "news"
    }
    moved = {grounding.text(grounding.head[one]) for one, event, _ in timeline.additions.tolist() if event == 1}
    assert timeline.after(2) == "watch(u36,news)"
    assert moved == {"watch(u36,news)", "user(u36)", "category(news)", *(f"tag({tag})" for tag in tags)}


def test_iptv_every_category_has_a_tag_and_every_tag_a_category():
    rows = {table.functor: table.rows for table in program("iptv").tables}
    assert {category for category, _ in rows["has_tag"]} == {category for (category,) in rows["category"]}
    assert {tag for _, tag in rows["has_tag"]} == {tag for (tag,) in rows["tag"]}


# --- Forums and emails ---------------------------------------------------------------------------------------------


def test_frank_never_looks_back_on_what_eve_wrote():
    for timeline in replayed("email").timelines:
        grounding = timeline.grounding
        seen = {
            (grounding.text(grounding.head[one]), grounding.text(grounding.body[one][0]))
            for one in timeline.additions[:, 0].tolist()
        }
        assert seen == {
            ("frank_to_eve", "frank_to_eve"),
            ("eve_to_adam", "eve_to_adam"),
            ("eve_to_adam", "frank_to_eve"),
        }


def test_posts_are_possible_while_the_small_forum_is_there_and_it_forgets_when_destroyed():
    timeline = replayed("forum-small").timelines[0]
    assert [state.possible for state in states(timeline)] == [0, 0, 2, 2, 2, 2, 0, 2, 2]
    assert len(timeline.additions_at(5)) == 4 and len(timeline.additions_at(7)) == 1


def test_only_members_post_nobody_joins_twice_and_a_team_has_one_forum():
    for state in all_states(replayed("forum")):
        forums, members, people = state["forum"], state["member"], state["empl"]
        assert {(person, team) for person, team, _ in state["message"]} == members
        assert len(state["message"]) == 3 * len(members)
        assert state["join"] == {(*person, *team) for person in people for team in forums} - members
        assert state["destroy"] == forums and state["create"] == state["team"] - forums


def test_a_message_reaches_those_who_are_members_when_it_is_posted():
    timeline = replayed("forum").timelines[0]
    grounding = timeline.grounding
    reached = {grounding.text(grounding.head[one]) for one, event, _ in timeline.additions.tolist() if event == 6}
    assert timeline.after(7) == "message(eve,sales,joke)"
    assert reached == {"forum(sales)", "empl(eve)", "empl(frank)"}


# --- Small teaching examples ---------------------------------------------------------------------------------------


def test_a_book_is_with_one_reader_at_most_and_a_kept_one_goes_to_who_waits():
    for state in all_states(replayed("library")):
        lent, waits = state["lent"], {book: reader for reader, book in state["waits"]}
        out = {book for _, book in lent}
        assert len(out) == len(lent) and state["return"] == lent
        for reader, book in {(*reader, *book) for reader in state["reader"] for book in state["book"]}:
            on_hand = book not in out and waits.get(book, reader) == reader
            assert ((reader, book) in state["borrow"]) == on_hand
            wanted = book in out and (reader, book) not in lent and book not in waits
            assert ((reader, book) in state["reserve"]) == wanted


def test_no_possible_event_of_the_ward_puts_anybody_beside_an_infectious_patient():
    seen = Counter()
    for state in all_states(replayed("ward")):
        room, lies = state.pairs("in_room"), state.pairs("lies")
        infectious = {patient for (patient,) in state["infectious"]}
        for functor in ("admit", "move"):
            for patient, bed in state[functor]:
                beside = {other for other, place in lies.items() if room[place] == room[bed] and other != patient}
                assert bed not in lies.values() and not beside & infectious
                assert patient not in infectious or not beside
                seen[functor] += 1
        assert len(state["shift"]) <= 1 and not {patient for (patient,) in state["discharge"]} & infectious
    assert seen["admit"] > 5 and seen["move"] == 3


def test_in_the_ward_shifts_take_turns_and_nurses_visit_in_theirs():
    shifts = [next(iter(state["shift"]), ("none",))[0] for state in all_states(replayed("ward"))]
    assert [one for place, one in enumerate(shifts) if place == 0 or one != shifts[place - 1]] == [
        "none",
        "day",
        "night",
        "day",
    ]
    for state in all_states(replayed("ward")):
        on_duty = {nurse for nurse, shift in state["works"] if (shift,) in state["shift"]}
        assert {nurse for nurse, _ in state["visit"]} <= on_duty


def test_alarms_are_possible_where_something_relied_on_is_down():
    rows = next(table.rows for table in program("outage").tables if table.functor == "needs")
    for state in all_states(replayed("outage")):
        down = {service for (service,) in state["down"]}
        assert state["relies"] == closure(set(rows))
        hit = {a for a, b in closure(set(rows)) if b in down and a != b and a not in down}
        assert {service for (service,) in state["alarm"]} == hit
        assert {service for (service,) in state["repair"]} == down


def closure(pairs: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    while True:
        more = pairs | {(a, d) for a, b in pairs for c, d in pairs if b == c}
        if more == pairs:
            return pairs
        pairs = more


def test_the_outage_example_shows_every_way_to_name_parameters():
    functors = program("outage").functors
    assert functors["service"].key == 4 and functors["crash"].dim == 8
    rules = [one.rule for one in program("outage").rules]
    assert Counter(str(rule.beta) for rule in rules if rule.beta) == {"any": 2}
    assert Counter(str(rule.matrix) for rule in rules if rule.matrix) == {"release(S)": 1, "noise": 2}


@pytest.mark.parametrize("name", NAMES)
def test_the_json_of_a_replay_tells_the_same_as_the_timeline(name: str, tmp_path: Path):
    data = ["robocup", "--split", "test"] if name == "robocup" else [folder(name) / "example.jsonl"]
    told = json.loads(fine("replay", FILES[name], *data, "--json", "--cache", tmp_path).out)
    done = replayed(name, load("robocup").test if name == "robocup" else None)
    assert [[len(state["possible"]) for state in one["states"]] for one in told] == [
        [state.possible for state in states(timeline)] for timeline in done.timelines
    ]
