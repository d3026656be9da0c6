"""The extension for VS Code: what it names is there, it packs, and its side of the protocol speaks with the real server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "editors/vscode"
SESSION = """
const { Server } = require(process.argv[2]);
const uri = "file://" + process.argv[3];
const seen = [];
const server = new Server(JSON.parse(process.argv[4]), (method, params) => seen.push([method, params]), (error) => { throw error; });
const isShown = () => seen.some(([method]) => method.endsWith("publishDiagnostics"));
const until = async () => { while (!isShown()) await new Promise((go) => setTimeout(go, 20)); };
(async () => {
  await server.ask("initialize", { processId: null, rootUri: null, capabilities: {} });
  server.tell("initialized", {});
  server.tell("textDocument/didOpen", { textDocument: { uri, languageId: "ndtt", version: 1, text: "user(änn).\\nbuy(U) :- usr(U).\\n" } });
  await until();
  const lenses = await server.ask("textDocument/codeLens", { textDocument: { uri } });
  console.log(JSON.stringify([seen[seen.length - 1][1].diagnostics.map((one) => one.code), lenses.map((one) => one.command.title)]));
  await server.ask("shutdown");
  server.tell("exit");
})();
"""


def test_the_folder_packs_with_all_that_it_names(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, FOLDER / "pack.py", tmp_path], capture_output=True, text=True, check=True)
    with zipfile.ZipFile(done.stdout.strip()) as file:
        names = set(file.namelist())
        found = json.loads(file.read("extension/package.json"))
    contributed = found["contributes"]
    wanted = [found["main"], contributed["grammars"][0]["path"], contributed["languages"][0]["configuration"]]
    assert {f"extension/{one.removeprefix('./')}" for one in wanted} <= names
    assert {"[Content_Types].xml", "extension.vsixmanifest", "extension/README.md"} <= names


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run the extension with")
def test_the_extension_speaks_with_the_server(tmp_path: Path) -> None:
    pytest.importorskip("pygls")
    script, file = tmp_path / "session.js", tmp_path / "shop.ndtt"
    script.write_text(SESSION, encoding="utf-8")
    file.write_text("", encoding="utf-8")
    server = json.dumps([sys.executable, "-m", "foretell.cli.main", "lsp"])
    command = ["node", script, FOLDER / "extension.js", file, server]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    codes, lenses = json.loads(done.stdout or f'["{done.stderr[-500:]!r}", 0]')
    assert codes == ["never-true"] and lenses == ["rule1: 1,057 parameters"]
