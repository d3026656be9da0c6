"""Our THP and SAHP beside EasyTPP's: milliseconds and peak memory of a training step, both sides in turns in one run.

    python benchmarks/rivals.py                                          # ours alone, on made-up sequences
    python benchmarks/rivals.py --rival-python ENV/bin/python            # both; ENV has easy-tpp
    python benchmarks/rivals.py --device cuda --rival-path carry/easytpp # both, by this interpreter

Every case is measured `--rounds` times on each side, in turns, each time in a process of its own; the table shows medians over all
steps. `--out FILE` keeps every measurement as JSON lines. How a step is measured is in `measuring.py`.
"""

from __future__ import annotations

import sys

from in_turns import compare

MODELS = ("THP", "SAHP")
CASES = ("16,1", "16,20")

if __name__ == "__main__":
    sys.exit(compare(__doc__, "ours_transformers.py", "rival_easytpp_transformers.py", CASES, models=MODELS))
