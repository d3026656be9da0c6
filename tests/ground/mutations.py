"""Texts damaged at random: characters dropped, doubled, swapped; pieces repeated, cut off or moved; hostile fragments put in."""

from __future__ import annotations

import random

FRAGMENTS = [
    "(", ")", "((((", ",", ".", ":-", "<-", "!", "::", ":", "not ", "!=", "=", "_", "'", '"', "%", "\\", "\n", "\t", "\x00", "\ufeff",
    "é", "∀", "\ud800", "X", "bos", "eos", "-1", "2.5", "99999999999999999999", ":- embed(_, 0).", ":- event(message).",
    ':- include("nowhere.ndtt").', ':- table(t, "none.csv").', "p(X,Y) :- p(Y,X).", "q :- not q.", "r(X) <- bos, r(X).",
    "f(g(h(i))).", "a" * 5000, "(" * 3000, "[]", "{}", ";", "null", "NaN", "1e999", "-0", "true", '{"', '"}', "]", "[[", "\\u0000",
]  # fmt: skip


def mutated(text: str, draw: random.Random) -> str:
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        here, there = sorted((draw.randint(0, len(text)), draw.randint(0, len(text))))
        kind = draw.randrange(7)
        if kind == 0:
            text = text[:here] + text[here + 1 :]
        elif kind == 1:
            text = text[:here] + draw.choice(FRAGMENTS) + text[here:]
        elif kind == 2:
            text = text[:here] + text[there:]
        elif kind == 3:
            text = text[:there] + text[here:there][:200] + text[there:]
        elif kind == 4:
            text = text[:here] + draw.choice("abXYZ_(),.:-<!=' \n0123456789\"") + text[here + 1 :]
        elif kind == 5:
            text = text[:here]
        else:
            lines = text.split("\n")
            draw.shuffle(lines)
            text = "\n".join(lines)
    return text
