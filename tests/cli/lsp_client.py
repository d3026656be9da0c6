"""A client of the language server for tests: JSON-RPC over the standard input and output of a real process, written out by hand."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds that an answer may take before the test gives up


class ServerRefusal(Exception):
    """The server's answer is an error."""


class EditorSession:
    """An editor with a few open files; `with` starts the server and shuts it down as the protocol says."""

    def __init__(self, *arguments: object, encodings: tuple[str, ...] = ("utf-16",)) -> None:
        self.arguments, self.encodings = arguments, list(encodings)
        self.number = 0
        self.answers: dict[int, dict[str, Any]] = {}
        self.diagnostics: dict[str, queue.Queue[list[dict[str, Any]]]] = defaultdict(queue.Queue)
        self.came = threading.Condition()
        self.capabilities: dict[str, Any] = {}

    def __enter__(self) -> EditorSession:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "foretell.cli.main", "lsp", *map(str, self.arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        general = {"positionEncodings": self.encodings}
        answer = self.ask("initialize", processId=None, rootUri=None, capabilities={"general": general})
        self.capabilities = answer["capabilities"]
        self.tell("initialized")
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if error == (None, None, None):
                self.ask("shutdown")
                self.tell("exit")
                assert self.process.wait(PATIENCE) == 0
        finally:
            self.process.kill()
            self.errors = self.process.communicate()[1].decode()

    # --- messages ---

    def tell(self, method: str, **params: object) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, **params: object) -> Any:
        self.number += 1
        self._write({"jsonrpc": "2.0", "id": self.number, "method": method, **({"params": params} if params else {})})
        with self.came:
            assert self.came.wait_for(lambda: self.number in self.answers, PATIENCE), f"no answer to {method}"
        answer = self.answers.pop(self.number)
        if "error" in answer:
            raise ServerRefusal(answer["error"]["message"])
        return answer["result"]

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        content = json.dumps(message, ensure_ascii=False).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        self.process.stdin.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            length = int(line.removeprefix(b"Content-Length: ")) if line.startswith(b"Content-Length") else 0
            while line.strip():
                line = stream.readline()
            message = json.loads(stream.read(length))
            if message.get("method") == "textDocument/publishDiagnostics":
                self.diagnostics[message["params"]["uri"]].put(message["params"]["diagnostics"])
            elif "id" in message and "method" not in message:
                with self.came:
                    self.answers[message["id"]] = message
                    self.came.notify_all()

    def processor_seconds(self) -> float:
        """Processor time of the server so far, of all its threads; Linux alone."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # --- what an editor does ---

    def open(self, path: Path, text: str) -> list[dict[str, Any]]:
        """Gives the mistakes that are shown."""
        document = {"uri": path.as_uri(), "languageId": "ndtt", "version": 0, "text": text}
        self.tell("textDocument/didOpen", textDocument=document)
        return self.shown(path)

    def type(self, path: Path, version: int, line: int, column: int, text: str, deleted: int = 0) -> None:
        place = {"start": {"line": line, "character": column}, "end": {"line": line, "character": column + deleted}}
        change = {"range": place, "text": text}
        document = {"uri": path.as_uri(), "version": version}
        self.tell("textDocument/didChange", textDocument=document, contentChanges=[change])

    def shown(self, path: Path) -> list[dict[str, Any]]:
        return self.diagnostics[path.as_uri()].get(timeout=PATIENCE)

    def at(self, method: str, path: Path, line: int, column: int, **more: object) -> Any:
        """The answer about a place, which counts from 0."""
        position = {"line": line, "character": column}
        return self.ask(f"textDocument/{method}", textDocument={"uri": path.as_uri()}, position=position, **more)

    def of(self, method: str, path: Path, **more: object) -> Any:
        """The answer about a whole text."""
        return self.ask(f"textDocument/{method}", textDocument={"uri": path.as_uri()}, **more)


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """A text of characters below U+10000 after edits of the protocol, which do not overlap."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(place: dict[str, int]) -> int:
        return starts[place["line"]] + place["character"]

    for edit in sorted(edits, key=lambda one: offset(one["range"]["start"]), reverse=True):
        start, end = offset(edit["range"]["start"]), offset(edit["range"]["end"])
        text = text[:start] + edit["newText"] + text[end:]
    return text
