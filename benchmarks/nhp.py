"""Our NHP beside EasyTPP's: milliseconds and peak memory of a training step, both sides in turns in one run.

    python benchmarks/nhp.py                                          # ours alone, on made-up sequences
    python benchmarks/nhp.py --rival-python ENV/bin/python            # both; ENV has easy-tpp
    python benchmarks/nhp.py --device cuda --rival-path carry/easytpp # both, by this interpreter

Every case is measured `--rounds` times on each side, in turns, each time in a process of its own; the table shows medians over all
steps. `--out FILE` keeps every measurement as JSON lines. How a step is measured is in `measuring.py`.
"""

from __future__ import annotations

import sys

from in_turns import compare

CASES = ("16,1", "64,1", "256,1", "16,20", "64,20")

if __name__ == "__main__":
    sys.exit(compare(__doc__, "ours_nhp.py", "rival_easytpp_nhp.py", CASES))
