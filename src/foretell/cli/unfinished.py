"""Whether a run was stopped before its training was done: its scores are then those of the best model so far."""

from __future__ import annotations

from foretell.errors import ForetellError
from foretell.models.build import Network
from foretell.models.capabilities import DirectFit
from foretell.train.checkpoint import load_checkpoint
from foretell.train.run import RunFolder


def unfinished(run: RunFolder, model: Network) -> str | None:
    """What a reader must know of an unfinished run; None: it is finished."""
    if isinstance(model, DirectFit):  # fitted in one go
        return None
    go_on = f"the best model so far is scored; continue with: foretell train --resume {run.path}"
    if not run.checkpoint.exists():
        return f"{run.path}: training was stopped before its first checkpoint; {go_on}"
    try:
        progress = load_checkpoint(run.checkpoint).progress
    except ForetellError as error:
        return f"{run.path}: whether training is finished is not known: {error}"
    return None if progress.done else f"{run.path}: training is not finished ({progress.epoch} epochs so far); {go_on}"
