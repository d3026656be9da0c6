"""Every code that a diagnostic can have, with its meaning in a line. Codes are stable: editors and scripts may rely on them."""

from __future__ import annotations

ERRORS = {
    # the text
    "syntax": "a word or sign stands where it cannot",
    "missing-full-stop": "a statement does not end",
    "missing-comma": "two arguments or conditions stand side by side",
    "unclosed-parenthesis": "a parenthesis is opened and not closed",
    "stray-parenthesis": "a parenthesis is closed that was not opened",
    "unclosed-quote": "a quote is opened and not closed on its line",
    "empty-arguments": "parentheses without arguments",
    "upper-case-functor": "a variable stands where a functor is expected",
    "nested-term": "a term inside a term",
    "bad-word": "neither a name nor an integer",
    "fractional-number": "a number with a fraction",
    "arithmetic": "there is no arithmetic",
    "odd-character": "a character that means nothing in the language",
    "comment-sign": "a comment of another language",
    "unknown-arrow": "an arrow of another language",
    "wrong-arrow": "`:-` where `<-` was meant, or the other way round",
    "disjunction": "there is no `or`",
    "negation-sign": "a negation of another language, or where none can be",
    "comparison-sign": "a comparison of another language",
    "parameter-names": "names of parameters that are misplaced, missing or too many",
    "too-many-errors": "so many mistakes that the rest of the file was not read",
    # files
    "missing-file": "a program, include or table that does not exist",
    "unreadable-file": "a file that cannot be read as what it should be",
    "include-cycle": "a file that includes itself",
    "include-twice": "a file that is included, or read as one table, twice",
    "bad-table": "a table with rows that are no facts",
    # declarations
    "unknown-declaration": "a declaration that does not exist",
    "bad-declaration": "a declaration with the wrong arguments",
    "bad-dimension": "a dimension that is no whole number in range",
    "declared-twice": "two declarations that contradict each other",
    "reserved-name": "`bos` or `eos` as a name of the program's own",
    # rules
    "unbound-head": "a head variable that the body does not bind",
    "unbound-name": "a variable in a parameter name that the body does not bind",
    "unbound-negation": "a variable under `not` that nothing else binds",
    "unbound-comparison": "a compared variable that nothing binds",
    "two-arities": "a functor with different numbers of arguments",
    "event-first": "a `<-` rule that does not begin with an event",
    "unknown-event": "a `<-` rule whose event nothing declares",
    "never-true": "a condition that nothing can ever make true",
    "negation-cycle": "something that depends on its own absence",
    "shape-clash": "one parameter name for matrices of two shapes",
}
WARNINGS = {
    "used-once": "a variable that is used once: a typo?",
    "never-fires": "a rule whose conditions contradict each other",
    "removes-nothing": "the removal of what nothing adds",
    "event-never-possible": "an event that no rule makes possible",
    "unused-declaration": "a declaration of what is used nowhere",
    "unused-name": "a parameter name that names nothing",
    "cyclic-proof": "recursion through facts with embeddings, whose proofs may be cyclic",
    "duplicate-row": "a row that a table has twice",
    "empty-table": "a table with a header and no rows",
}
