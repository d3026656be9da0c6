"""Notebooks as pages: `tutorial/NAME.ipynb` becomes `tutorial/NAME.html`, with its text, code and outputs.

A build renders the outputs that are in the file and executes nothing. `python docs/build_hooks/notebooks.py docs/tutorial/*.ipynb`
executes notebooks and writes their outputs back.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SUFFIX = ".ipynb"
SECONDS_PER_CELL = 300
ANSI = re.compile(r"\x1b\[[0-9;]*m")
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass
class Rendered:
    """A notebook as Markdown, and its pictures by name."""

    text: str
    pictures: dict[str, bytes] = field(default_factory=dict)


class NotebookFile(File):
    """A notebook that is a page: links name the `.ipynb`, which a forge shows, and lead to the HTML."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """mkdocs calls this with the files of the documentation."""
    for file in [one for one in files if one.src_uri.endswith(SUFFIX)]:
        made = render(Path(str(file.abs_src_path)))
        files.remove(file)
        page = NotebookFile(file.src_uri, config.docs_dir, config.site_dir, config.use_directory_urls)
        page.content_string = made.text
        files.append(page)
        for name, picture in made.pictures.items():
            files.append(File.generated(config, f"{Path(file.src_uri).parent}/{name}", content=picture))
    return files


def render(path: Path) -> Rendered:
    """The page of a notebook."""
    made = Rendered("")
    parts = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        outputs = joined(cell["outputs"])
        parts += [_output(one, f"{path.stem}-{number}-{place}.png", made) for place, one in enumerate(outputs)]
    made.text = "\n\n".join(part for part in parts if part) + "\n"
    return made


def joined(outputs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Outputs of a cell, with texts that were printed one after the other as one."""
    found: list[dict[str, Any]] = []
    for one in outputs:
        if found and one["output_type"] == found[-1]["output_type"] == "stream":
            found[-1] = {**found[-1], "text": [*found[-1]["text"], *one["text"]]}
        else:
            found.append(one)
    return found


def _output(output: dict[str, Any], name: str, made: Rendered) -> str:
    if output["output_type"] == "stream":
        return _text("".join(output["text"]))
    data = output.get("data", {})
    if "image/png" in data:
        made.pictures[name] = base64.b64decode("".join(data["image/png"]))
        return f"![Output of the cell above]({name})"
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        table = re.search(r"<table.*</table>", html, flags=re.DOTALL)
        if table:  # without the frame's own class and border, the site's style applies
            body = re.sub(r"<table[^>]*>", "<table>", table.group()).replace(' style="text-align: right;"', "")
            return re.sub(r"\n\s*", "", body)
    return _text("".join(data.get("text/plain", [])))


def _text(text: str) -> str:
    plain = ANSI.sub("", text).rstrip("\n")
    return f"``` {{.text .output}}\n{plain}\n```" if plain else ""


def execute(path: Path) -> dict[str, Any]:
    """Run a notebook in an empty folder; it as JSON, with its outputs. An error in a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=SECONDS_PER_CELL, resources={"metadata": {"path": folder}})
        client.execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # when each cell ran
    notebook.metadata = nbformat.from_dict(KERNEL)
    return json.loads(nbformat.writes(notebook))


def write(path: Path, notebook: dict[str, Any]) -> None:
    """A notebook as a file whose lines are worth comparing."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name), execute(Path(name)))
