"""Flags and arguments that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Impossible(StrEnum):
    """What becomes of events that the rules make impossible."""

    error = "error"
    skip = "skip"
    exogenous = "exogenous"


class UndeclaredChoice(StrEnum):
    """What events are that the program neither declares events nor exogenous."""

    error = "error"
    exogenous = "exogenous"


ProgramArgument = Annotated[Path, typer.Argument(help="A program: P.ndtt, or the name of a shipped one (robocup).")]
DataArgument = Annotated[str, typer.Argument(help="A file, a folder, or the name of an embedded data set (robocup).")]
SequenceOption = Annotated[str | None, typer.Option("--sequence", help="Only the sequence with this id or place.")]
SplitOption = Annotated[str | None, typer.Option("--split", help="train, dev or test; default: all.")]
ImpossibleOption = Annotated[
    Impossible,
    typer.Option("--impossible", help="Events the program makes impossible: an error, left out, or kept unscored."),
]
OtherImpossibleOption = Annotated[
    Impossible | None,
    typer.Option(
        "--impossible",
        help="Events that the rules make impossible: an error, left out, or kept unscored; default: the run's.",
    ),
]
UndeclaredOption = Annotated[
    UndeclaredChoice,
    typer.Option("--undeclared", help="Events that nothing declares: an error, or taken to be exogenous."),
]
ColumnsOption = Annotated[
    str, typer.Option("--columns", help="Columns of a long table: sequence=patient,time=when,event=code.")
]
LimitOption = Annotated[
    float, typer.Option("--limit", help="Multiplies how many instantiations of rules are allowed.", min=1e-6)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
