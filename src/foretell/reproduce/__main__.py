"""`python -m foretell.reproduce NAME…`: does what `foretell reproduce` does, without typer."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence

from foretell.errors import ForetellError
from foretell.reproduce.command import listed, listed_text, reproduce, reproduce_options
from foretell.shards.place import parse_place


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m foretell.reproduce", description="The experiments of the paper.")
    parser.add_argument("experiments", nargs="*", metavar="NAME")
    parser.add_argument("--data")
    parser.add_argument("--out")
    parser.add_argument("--models", default="")
    parser.add_argument("--seeds", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--on", default="this")
    parser.add_argument("--gpu-jobs", type=int, default=4)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--no-fit", dest="fit", action="store_false")
    parser.add_argument("--no-results", dest="results", action="store_false")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--json", dest="as_json", action="store_true")
    parser.add_argument("--list", dest="list_", action="store_true")
    args = vars(parser.parse_args(arguments))
    experiments, as_json, list_ = args.pop("experiments"), args.pop("as_json"), args.pop("list_")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        place = parse_place(args.pop("on"))
        if list_ or not experiments:
            sys.stdout.write(json.dumps(listed(), indent=2) + "\n" if as_json else listed_text())
            return 0
        outcome = reproduce(experiments, reproduce_options(on=place, **args), tell)
    except ForetellError as error:
        sys.stderr.write("".join(f"error: {line}\n" for line in str(error).splitlines()))
        return 1
    sys.stdout.write(json.dumps(outcome.to_json(), indent=2, allow_nan=False) + "\n" if as_json else outcome.text())
    return outcome.code


def tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
