"""Names of public classes: each is there once, is a noun, and its noun stands in the glossary."""

import re
from collections import defaultdict

import pytest

from tests.lint.source import ROOT, public_classes, words

# Nouns that end as participles do.
NOUNS = {"seed", "speed", "feed", "bed", "need", "token", "kitchen", "garden", "screen", "span", "children"}
NOUNS |= {"embed"}  # the declaration `:- embed(…)`, whose name the tree of a program shows
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


def test_no_public_class_is_there_twice():
    files = defaultdict(list)
    for file, name in public_classes():
        files[name].append(file)
    assert not {name: found for name, found in files.items() if len(found) > 1}


def test_no_public_class_is_a_bare_participle():
    assert not [name for _, name in public_classes() if _is_participle(name)]


def test_the_noun_of_every_public_class_stands_in_the_glossary():
    known = glossary_words()
    missing = defaultdict(list)
    for file, name in public_classes():
        noun = words(name)[-1]
        singular = {
            noun.removesuffix("s"),
            noun.removesuffix("es"),
            re.sub("ies$", "y", noun),
            re.sub("ices$", "ix", noun),
        }
        if not known & {noun, *singular}:
            missing[noun].append(f"{file}: {name}")
    assert not dict(missing)


def _is_participle(name: str) -> bool:
    parts = words(name)
    irregular = {"known", "shown", "drawn", "taken", "begun", "written", "given", "chosen", "learnt", "taught", "seen"}
    last = parts[-1]
    return last not in NOUNS and (last.endswith("ed") or last in irregular)


def glossary_words() -> set[str]:
    """The words that the glossary explains: those in bold."""
    terms = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY.read_text(encoding="utf-8"))
    return {word.strip(" `()").lower() for term in terms for word in re.split(r"[,\s-]+", term)}


@pytest.mark.parametrize("name", ["Asked", "Begun", "Drawn", "EndsAndChosen", "Prepared"])
def test_a_participle_is_found(name):
    assert _is_participle(name)


@pytest.mark.parametrize("name", ["Query", "Token", "Speed", "PreparedBatch", "Attention"])
def test_a_noun_is_no_participle(name):
    assert not _is_participle(name)
