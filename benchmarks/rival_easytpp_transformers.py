"""Time and memory of one training step of EasyTPP's THP or SAHP (`MODEL` in the environment says which).

    MODEL=THP OMP_WAIT_POLICY=passive python benchmarks/rival_easytpp_transformers.py --data batch.npz --case 16,1 --case 16,20

Model, batch and step are EasyTPP's own, as in `rival_easytpp.py`. Its layers have neither residual connections nor LayerNorm.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from measuring import main
from rival_easytpp import build

if __name__ == "__main__":
    sys.exit(main(partial(build, model_id=os.environ["MODEL"]), "Time EasyTPP's THP or SAHP"))
