"""This folder → an extension that VS Code installs: `python pack.py [FOLDER]` writes `ndtt-VERSION.vsix` there. No Node is needed."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

HERE = Path(__file__).parent
FILES = ("package.json", "extension.js", "language-configuration.json", "README.md", "syntaxes/ndtt.tmLanguage.json")
TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension=".json" ContentType="application/json"/>
<Default Extension=".js" ContentType="application/javascript"/>
<Default Extension=".md" ContentType="text/markdown"/>
<Default Extension=".vsixmanifest" ContentType="text/xml"/>
</Types>
"""
MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
<Metadata>
<Identity Language="en-US" Id={name} Version={version} Publisher={publisher}/>
<DisplayName>NDTT</DisplayName>
<Description xml:space="preserve">Rules of foretell</Description>
<Properties><Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/></Properties>
</Metadata>
<Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
<Dependencies/>
<Assets>
<Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
<Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
</Assets>
</PackageManifest>
"""


def pack(folder: Path) -> Path:
    """The file that was written."""
    found = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    named = {name: quoteattr(found[name]) for name in ("name", "version", "publisher")}
    path = folder / f"{found['name']}-{found['version']}.vsix"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", TYPES)
        file.writestr("extension.vsixmanifest", MANIFEST.format(**named, engine=quoteattr(found["engines"]["vscode"])))
        for name in FILES:
            file.writestr(f"extension/{name}", (HERE / name).read_bytes())
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{pack(Path(sys.argv[1] if len(sys.argv) > 1 else '.'))}\n")
