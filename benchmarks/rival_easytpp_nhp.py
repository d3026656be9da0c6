"""Time and memory of one training step of EasyTPP's NHP, run by an interpreter that has `easy_tpp`.

    OMP_WAIT_POLICY=passive python benchmarks/rival_easytpp_nhp.py --data batch.npz --case 16,1 --case 16,20

Model, batch and step are EasyTPP's own, as in `rival_easytpp.py`.
"""

from __future__ import annotations

import sys
from functools import partial

from measuring import main
from rival_easytpp import build

if __name__ == "__main__":
    sys.exit(main(partial(build, model_id="NHP"), "Time EasyTPP's NHP"))
