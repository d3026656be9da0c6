"""The words and signs of the language → a TextMate grammar, for editors that highlight text by patterns.

`python -m foretell.lang.textmate > editors/vscode/syntaxes/ndtt.tmLanguage.json` writes it; a test compares the file with this module.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from foretell.lang.declarations import DECLARATIONS
from foretell.lang.highlight import PUNCTUATION
from foretell.lang.syntax import COUNTING
from foretell.lang.tokens import MARKS

WORD = r"[\p{L}\p{N}_]"
UPPER = r"[\p{Lu}_]"


def grammar() -> dict[str, Any]:
    """Return the grammar. At each position, patterns are tried in this order; none spans several lines."""
    signs = sorted((mark for mark in MARKS if mark not in PUNCTUATION), key=len, reverse=True)
    patterns = [
        ("comment.line.percentage.ndtt", r"%.*$"),
        ("string.quoted.ndtt", r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""),
        ("keyword.operator.word.ndtt", rf"(?<!{WORD})not(?=\s+(?:{WORD}|['\"]))"),
        ("keyword.other.ndtt", rf"(?<!{WORD})(?:{'|'.join(COUNTING)})(?=\s*\(\s*{WORD}+\s*\()"),
        ("keyword.other.ndtt", rf"(?<!{WORD})for(?=\s+-?[0-9])"),
        ("constant.numeric.duration.ndtt", rf"(?<=for )-?[0-9]{WORD}*(?:\.[0-9]{WORD}*)?"),
        ("variable.other.ndtt", rf"(?<!{WORD}){UPPER}{WORD}*"),
        ("constant.numeric.integer.ndtt", rf"(?<!{WORD})-?[0-9]+(?!{WORD})"),
        ("entity.name.function.ndtt", rf"{WORD}+(?=\s*\()"),
        ("constant.other.ndtt", rf"{WORD}+"),
        ("keyword.operator.ndtt", "|".join(map(re.escape, signs))),
        ("punctuation.separator.ndtt", f"[{re.escape(''.join(sorted(PUNCTUATION)))}]"),
    ]
    declaration = {
        "match": rf"(?:^|(?<=[.]))\s*(:-)\s*({'|'.join(DECLARATIONS)})(?=\s*\()",
        "captures": {"1": {"name": "keyword.operator.ndtt"}, "2": {"name": "keyword.declaration.ndtt"}},
    }
    return {
        "name": "NDTT",
        "scopeName": "source.ndtt",
        "fileTypes": ["ndtt"],
        "patterns": [declaration, *({"name": name, "match": match} for name, match in patterns)],
    }


def main() -> None:
    sys.stdout.write(json.dumps(grammar(), indent=2) + "\n")


if __name__ == "__main__":
    main()
