"""One panel of a march: 15 Gauss-Kronrod nodes, and the polynomial through what was found at them.

In: values of a function at the nodes of [0, 1]. Out: its integral by two rules, up to each node, and the place where it reaches a
given size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

NODES = 15
CELLS = 128  # of [0, 1], in one of which a place is looked for
CORRECTIONS = 4  # by Newton, within that cell

# Gauss-Kronrod (7, 15) on [-1, 1]: Piessens et al., QUADPACK (1983), table for qk15.
_NODES = (
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144691693013,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
    0.0,
)
_KRONROD = (
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
    0.209482141084727828012999174891714,
)
_GAUSS = (
    0.129484966168869693270611432679082,
    0.279705391489276667901467771423780,
    0.381830050505118944950369775488975,
    0.417959183673469387755102040816327,
)


@dataclass(frozen=True)
class Rule:
    """Nodes on [0, 1], both rules' weights there, and matrices from the values at the nodes to the polynomial and its integral from 0."""

    nodes: Tensor  # [15]
    kronrod: Tensor  # [15]
    gauss: Tensor  # [15]
    cumulative: Tensor  # [15, 15]: the integral up to each node
    to_edges: Tensor  # [CELLS + 1, 15]: and up to the edge of each cell
    at_edges: Tensor  # [CELLS + 1, 15]: the polynomial itself there

    def reaching(self, values: Tensor, size: Tensor) -> Tensor:
        """Where on [0, 1] the integral of each row of values [M, 15] first reaches `size` [M], which it does.

        In a cell, which is so narrow that the cubic through both its edges, with the slopes there, is as good as the polynomial.
        """
        up_to = values @ self.to_edges.T
        there = up_to[:, 1:] >= size[:, None]
        there[:, -1] = True
        cell = there.int().argmax(1, keepdim=True)
        slopes = (values @ self.at_edges.T) / CELLS
        start, end = (up_to.gather(1, cell + one).squeeze(1) for one in (0, 1))
        first, last = (slopes.gather(1, cell + one).squeeze(1) for one in (0, 1))
        square, cube = 3.0 * (end - start) - 2.0 * first - last, first + last - 2.0 * (end - start)
        inside = ((size - start) / (end - start).clamp(min=1e-300)).clamp(0.0, 1.0)
        for _ in range(CORRECTIONS):
            missing = size - start - inside * (first + inside * (square + inside * cube))
            slope = first + inside * (2.0 * square + inside * 3.0 * cube)
            inside = (inside + missing / slope.clamp(min=1e-300)).clamp(0.0, 1.0)
        return (cell.squeeze(1) + inside) / CELLS


@lru_cache
def gauss_kronrod(device: torch.device) -> Rule:
    nodes = np.array([-x for x in _NODES[:-1]] + [0.0] + list(reversed(_NODES[:-1])))
    kronrod = np.array([*list(_KRONROD[:-1]), _KRONROD[-1], *list(reversed(_KRONROD[:-1]))])
    gauss = np.zeros(NODES)
    gauss[[1, 3, 5, 7, 9, 11, 13]] = [*list(_GAUSS[:-1]), _GAUSS[-1], *list(reversed(_GAUSS[:-1]))]
    legendre = np.polynomial.legendre
    # Coefficients of the interpolating polynomial in Legendre's basis, and integrated from −1.
    basis = np.linalg.inv(legendre.legvander(nodes, NODES - 1))
    integrated = np.stack([legendre.legint(row, lbnd=-1.0) for row in np.eye(NODES)], axis=1)
    running = integrated @ basis / 2.0
    cumulative = legendre.legvander(nodes, NODES) @ running
    edges = np.linspace(-1.0, 1.0, CELLS + 1)
    to_edges, at_edges = legendre.legvander(edges, NODES) @ running, legendre.legvander(edges, NODES - 1) @ basis
    arrays = (nodes + 1.0) / 2.0, kronrod / 2.0, gauss / 2.0, cumulative, to_edges, at_edges
    return Rule(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays))
