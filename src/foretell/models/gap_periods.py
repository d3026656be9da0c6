"""Find the strongest periods in the gaps between events.

Where people work by day, gaps of some days are mostly whole days. For a period `p`, gaps longer than `p` get a weight that rises
smoothly from 0 at `p` to 1 at `3p` and falls as smoothly to 0 at the longest gap. Their phases are averaged:
`c = Σ w exp(2πi g/p) / Σ w`. For a smooth density this is almost 0; if phases are uniform, `|c|² (Σ w)² / Σ w²` has about
a standard exponential distribution.
"""

from __future__ import annotations

import numpy as np

from foretell.data import EventData
from foretell.data.dequantise import grid_of

LONGEST_QUANTILE = (
    0.995  # this quantile counts as the longest gap; frequencies differ if they are one cycle per longest gap apart
)
CYCLES, PER_CYCLE = (6, 400), 2  # cycles of a period in the longest gap, and tested frequencies per cycle
FEWEST, MOST = 200, 20_000  # the smallest and largest number of gaps to analyse
CHANCE = 1e-6  # the probability of finding any period in data without one
WEAKEST = 0.05  # the smallest |c| that is used: a smaller one would hardly change a score
WHOLE_STEPS = 10  # a period of fewer grid steps is a property of the grid of times
SIDEBAND = 0.1  # relative distance of frequencies within which a line belongs to a stronger one
REFINED = 33  # the number of frequencies tried around the best one to refine it


def gap_periods(data: EventData, most: int) -> tuple[float, ...]:
    """Return at most `most` periods, the strongest first; an empty tuple if none is beyond chance."""
    gaps = data.gaps()
    gaps = gaps[gaps > 0.0]
    if not most or len(gaps) < FEWEST:
        return ()
    longest = float(np.quantile(gaps, LONGEST_QUANTILE))
    gaps = gaps[gaps < longest]
    if len(gaps) > MOST:
        gaps = np.random.default_rng(0).choice(gaps, MOST, replace=False)
    gaps = np.sort(gaps) / longest
    frequencies = np.arange(CYCLES[0], CYCLES[1], 1.0 / PER_CYCLE)
    shortest = WHOLE_STEPS * (grid_of(data) or 0.0)
    frequencies = frequencies[frequencies * shortest <= longest]
    strength = np.array([_strength(gaps, one) for one in frequencies])
    threshold = np.log(max(len(frequencies), 1) / CHANCE)
    found: list[float] = []
    while len(found) < most and strength.max(initial=0.0) > threshold:
        place = int(strength.argmax())
        around = frequencies[place] + np.linspace(-1.0, 1.0, REFINED) / PER_CYCLE
        best = around[int(np.argmax([_strength(gaps, one) for one in around]))]
        found.append(float(longest / best))
        strength[np.abs(frequencies - best) < max(2.0, SIDEBAND * best)] = 0.0
    return tuple(found)


def _strength(gaps: np.ndarray, frequency: float) -> float:
    """Return the strength of a line at this frequency, in standard exponentials; 0 if too weak. `gaps` are sorted, the longest is 1."""
    gaps = gaps[np.searchsorted(gaps, 1.0 / frequency) :]
    if len(gaps) < FEWEST:
        return 0.0
    rise = np.sin(0.25 * np.pi * np.minimum(gaps * frequency - 1.0, 2.0)) ** 2
    weights = rise * np.cos(0.5 * np.pi * gaps) ** 2
    summed = abs((weights * np.exp(2j * np.pi * frequency * gaps)).sum())
    return 0.0 if summed < WEAKEST * weights.sum() else float(summed**2 / (weights**2).sum())
