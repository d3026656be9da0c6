"""`python -m foretell`: the command line."""

from foretell.cli.main import run

run()
