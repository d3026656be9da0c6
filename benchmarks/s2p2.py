"""Our S2P2 beside EasyTPP's: milliseconds and peak memory of a training step, both sides in turns in one run.

    python benchmarks/s2p2.py                                          # ours alone, on made-up sequences
    python benchmarks/s2p2.py --rival-python ENV/bin/python            # both; ENV has easy-tpp 0.3 or later
    python benchmarks/s2p2.py --device cuda --rival-path carry/easytpp # both, by this interpreter

The sizes are the authors': 4 layers, 128 components, 16 states, 10 points per gap. Every case is measured `--rounds` times on each side,
in turns, each time in a process of its own; the table shows medians over all steps. `--out FILE` keeps every measurement as JSON
lines. How a step is measured is in `measuring.py`; what it costs by the length of a sequence, in `s2p2_lengths.py`.
"""

from __future__ import annotations

import sys

from in_turns import compare

CASES = ("64,10",)

if __name__ == "__main__":
    sys.exit(compare(__doc__, "ours_s2p2.py", "rival_easytpp_s2p2.py", CASES, repeats=5))
