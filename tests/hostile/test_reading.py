"""Only regular files are read, archives unpack within limits, documents are flat, and programs stay in their folder."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foretell.data.files import text_lines
from foretell.data.gatherer import Gatherer
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.reading import (
    UnreadableFile,
    limits,
    open_regular,
    open_unpacked,
    parse_json,
    parse_toml,
    read_bytes,
    read_json,
    read_toml,
)
from foretell.terms import LONGEST_NAME, NameProblem, normalise
from foretell.wording import did_you_mean, readable
from tests.cli.invoking import refused

SECRET = "root:x:0:0:secret"


def special(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "to-pipe").symlink_to(folder / "pipe")
    return {name: folder / name for name in ("pipe", "zero", "loop", "to-pipe")} | {"folder": folder}


def test_pipes_devices_loops_and_folders_are_refused_at_once(tmp_path: Path):
    for path in special(tmp_path).values():
        for read in (open_regular, read_bytes, read_json, read_toml):
            with pytest.raises(UnreadableFile):
                read(path)
    with pytest.raises(UnreadableFile) as caught:
        open_regular(tmp_path / "gone")
    assert caught.value.missing


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet"])
def test_a_data_file_that_is_a_pipe_or_a_device_is_an_error(suffix: str, tmp_path: Path):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        assert f"{name}{suffix}" in refused("data", "describe", tmp_path / f"{name}{suffix}")


def test_an_archive_unpacks_up_to_a_limit_that_can_be_raised(tmp_path: Path):
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(80):
            file.write(b"x" * (1 << 20))
    gatherer = Gatherer(str(path), "line")
    for _ in text_lines(path, gatherer):
        pass
    assert "unpacks to more than 67,108,864 bytes" in gatherer.problems[0].text
    assert "(max_bytes=…)" in gatherer.problems[0].text
    with limits(max_bytes=100 << 20), open_unpacked(path, packed=True) as stream:
        assert sum(len(block) for block in iter(lambda: stream.read(1 << 20), b"")) == 80 << 20
    with limits(max_bytes=10), pytest.raises(UnreadableFile, match="more than 10"):
        open_unpacked(path, packed=False)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_json, "[" * 100_000),
        (parse_json, "[" * 500 + "]" * 500),
        (parse_json, '{"a":' * 500 + "1" + "}" * 500),
        (parse_json, "9" * 5_000),
        (parse_json, "9" * 1_000),
        (parse_json, "[1, 2"),
        (parse_toml, "a = " + "[" * 100_000),
        (parse_toml, "a = " + "[" * 300 + "]" * 300),
        (parse_toml, ".".join("a" * 5_000) + " = 1"),
        (parse_toml, "a = " + "9" * 5_000),
        (parse_toml, "a = " + "9" * 1_000),
        (parse_toml, "[" + ".".join("b" * 20_000) + "]"),
    ],
    ids=lambda value: getattr(value, "__name__", "") or repr(value[:12]),
)
def test_deep_or_endless_documents_are_a_value_error(parse, text: str):
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert len(str(caught.value)) < 300


def test_messages_are_bounded_and_hold_nothing_that_a_terminal_obeys():
    message = str(ForetellError("\x1b[31m" + "x" * 3_000_000 + "\n" + "y\n" * 200_000))
    assert len(message) < 70_000 and "more lines" in message
    assert all(one.isprintable() or one == "\n" for one in message)
    assert readable("a \x1b[2J b\x07") == "a ␛[2J b␇"


def test_hints_take_time_that_is_linear_in_the_names():
    names = [f"event-number-{n}" for n in range(200_000)]
    began = time.process_time()
    for _ in range(50):
        did_you_mean("evnet-number-77", names)
    assert did_you_mean("evnet-number-77", names[:5_000]) == "did you mean `event-number-77`?"
    assert did_you_mean("x" * 10_000_000, names) == did_you_mean("", names) == ""
    assert time.process_time() - began < 20.0  # takes about one; the product of the lengths would take minutes


def test_a_name_has_a_largest_length_and_its_message_is_short():
    assert normalise("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    for name in ("x" * 10_000_000, "f(" + "a," * 1_000_000 + "a)", "f(" * 10_000):
        with pytest.raises(NameProblem) as caught:
            normalise(name)
        assert len(str(caught.value)) < 300


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a secret beside the folder of a program, and links to it from there."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "passwd.csv").write_text(f"user\n{SECRET}\n{SECRET},1\n")
    (tmp_path / "secret" / "passwd.ndtt").write_text(f"{SECRET}\n")
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "link.ndtt").symlink_to(tmp_path / "secret" / "passwd.ndtt")
    (tmp_path / "program" / "folder").symlink_to(tmp_path / "secret")
    return tmp_path


@pytest.mark.parametrize(
    "path", ["../secret/passwd", "{}/secret/passwd", "link", "folder/passwd", "./../program/../secret/passwd"]
)
@pytest.mark.parametrize("statement", [':- include("{}.ndtt").', ':- table(t, "{}.csv").'])
def test_a_program_reads_nothing_outside_its_folder(statement: str, path: str, outside: Path):
    if path == "link" and "table" in statement:
        (outside / "program" / "link.csv").symlink_to(outside / "secret" / "passwd.csv")
    program = outside / "program" / "p.ndtt"
    program.write_text(statement.format(path.format(outside)) + "\n")
    with pytest.raises(ForetellError) as caught:
        Program.from_file(program)
    assert "outside-folder" in str(caught.value) and "secret" not in str(caught.value).replace(
        "../secret/", ""
    ).replace(f"{outside}/secret", "")
    with limits(allow=(outside / "secret",)), pytest.raises(ForetellError) as caught:
        Program.from_file(program)
    assert "outside-folder" not in str(caught.value)


def test_an_allowed_folder_is_read(outside: Path):
    (outside / "secret" / "passwd.csv").write_text("user\nroot\n")
    program = outside / "program" / "p.ndtt"
    program.write_text(':- table(t, "../secret/passwd.csv").\n')
    with pytest.raises(ForetellError, match="outside-folder"):
        Program.from_file(program)
    with limits(allow=(outside / "secret",)):
        assert Program.from_file(program).tables[0].rows == [("root",)]


def test_a_table_that_is_not_utf8_is_an_error_with_its_place(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    column = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"\xff\xfe")]
    )
    parquet.write_table(pyarrow.table({"user": column}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_bytes("user\nM\xfcller\n".encode("latin1"))
    for suffix in ("csv", "parquet"):
        with pytest.raises(ForetellError, match="UTF-8"):
            Program.from_text(f':- table(t, "t.{suffix}").', folder=tmp_path)


def test_a_table_of_a_million_bad_rows_is_left_after_enough(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a,b\n" + "x\n" * 1_000_000)
    began = time.process_time()
    with pytest.raises(ForetellError, match="rest was not read"):
        Program.from_text(':- table(t, "t.csv").', folder=tmp_path)
    assert time.process_time() - began < 10.0


LOADING = """import sys, time
from foretell.cli import main
before = main._handle_interrupts
def ready(flag):
    found = before(flag)
    print("ready", flush=True)
    return found
main._handle_interrupts = ready
sys.argv = ["foretell", "params", "nowhere"]
main.run()
"""


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.4, 1.0])
def test_interrupting_a_command_that_still_loads_ends_with_130_and_one_line(delay: float, tmp_path: Path):
    child = subprocess.Popen(
        [sys.executable, "-c", LOADING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) in ((130, "interrupted\n"), (1, "error: nowhere: no such run folder\n"))


INTERRUPTED_IMPORT = """import os, signal, sys
from foretell.cli import main
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)
        return None
module = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.meta_path.insert(0, Interrupter())
sys.argv = ["foretell", "params", module]
main.run()
"""


@pytest.mark.parametrize("module", ["typer", "foretell.cli.commands", "numpy", "torch"])
def test_an_interrupt_while_a_module_is_imported_ends_with_130_and_one_line(module: str, tmp_path: Path):
    words = [sys.executable, "-c", INTERRUPTED_IMPORT, module]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interrupt_that_nobody_can_catch_ends_with_130_and_one_line():
    """As one in the callback of a weak reference, while a module is being imported."""
    text = "import sys, weakref\nfrom foretell.cli import main\n" + (
        "class Part:\n    pass\n\n\ndef interrupt(_):\n    raise KeyboardInterrupt\n\n\n"
        "def command():\n    part = Part()\n    seen = weakref.ref(part, interrupt)\n    del part\n\n\n"
        "main._run = command\nmain.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
