"""The language server: translates an editor's requests to `lang.editing`, and the results to the protocol's types and units."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from lsprotocol import types as lsp
from pygls import uris
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.editing import EditedProgram, RenameError
from foretell.lang.formatter import format_program
from foretell.lang.source import Source, Span
from foretell.lang.syntax import pretty_atom
from foretell.options import Undeclared

PAUSE = 0.03  # seconds without a key press before a program is checked
SYMBOLS = {"deduce": lsp.SymbolKind.Function, "add": lsp.SymbolKind.Event, "remove": lsp.SymbolKind.Operator}
PROPOSALS = {
    "functor": lsp.CompletionItemKind.Function,
    "constant": lsp.CompletionItemKind.Constant,
    "variable": lsp.CompletionItemKind.Variable,
    "declaration": lsp.CompletionItemKind.Keyword,
}


class ProgramServer(LanguageServer):
    """A language server for programs; it caches the analysis of each open text until the text changes."""

    def __init__(self, undeclared: Undeclared, dim: int) -> None:
        super().__init__("foretell", metadata.version("foretell"))
        self.undeclared: Undeclared = undeclared
        self.dim = dim
        self.read: dict[str, tuple[str, EditedProgram]] = {}
        self.told: dict[str, set[str]] = {}  # by edited text: the files for which mistakes are shown
        self.turn: dict[str, int] = {}

    def program(self, uri: str) -> EditedProgram:
        text = self.workspace.get_text_document(uri).source
        known = self.read.get(uri)
        if known is None or known[0] != text:
            path = Path(uris.to_fs_path(uri) or "untitled.ndtt")
            known = self.read[uri] = text, EditedProgram(text, path, self.undeclared, self.dim)
        return known[1]

    # --- places ---

    def offset(self, source: Source, position: lsp.Position) -> int:
        """Convert a position of the protocol to an offset. Lines and columns count from 0; the client chooses the unit of columns."""
        if position.line >= len(source.line_starts):
            return len(source.text)
        line = source.line(position.line + 1)
        found = self.workspace.position_codec.position_from_client_units([line], lsp.Position(0, position.character))
        return source.line_starts[position.line] + min(found.character, len(line))

    def range(self, span: Span) -> lsp.Range:
        return lsp.Range(self.position(span.source, span.start), self.position(span.source, span.end))

    def position(self, source: Source, offset: int) -> lsp.Position:
        if not source.is_read:
            return lsp.Position(0, 0)
        line, column = source.line_column(offset)
        before = source.line(line)[: column - 1]
        return lsp.Position(line - 1, self.workspace.position_codec.client_num_units(before))

    def uri(self, program: EditedProgram, source: Source, own: str) -> str:
        return own if source is program.source else uris.from_fs_path(str(Path(source.name).resolve())) or own

    # --- mistakes ---

    async def check(self, uri: str) -> None:
        """Check a text after a pause in typing, concurrently with other requests."""
        turn = self.turn[uri] = self.turn.get(uri, 0) + 1
        await asyncio.sleep(PAUSE)
        if self.turn.get(uri) != turn:
            return
        program = self.program(uri)
        found = await asyncio.to_thread(lambda: program.diagnostics)
        if self.turn.get(uri) == turn:
            self.publish(uri, program, found)

    def publish(self, uri: str, program: EditedProgram, found: Iterable[Diagnostic]) -> None:
        by_file: dict[str, list[lsp.Diagnostic]] = {uri: []}
        for one in found:
            by_file.setdefault(self.uri(program, one.span.source, uri), []).append(self.diagnostic(one))
        for gone in self.told.get(uri, set()) - by_file.keys():
            by_file[gone] = []
        self.told[uri] = {file for file, shown in by_file.items() if shown}
        for file, shown in by_file.items():
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(file, shown))

    def diagnostic(self, one: Diagnostic) -> lsp.Diagnostic:
        is_error = one.severity == "error"
        return lsp.Diagnostic(
            self.range(one.span),
            one.message + (f"\n{one.hint}" if one.hint else ""),
            severity=lsp.DiagnosticSeverity.Error if is_error else lsp.DiagnosticSeverity.Warning,
            code=one.code,
            source="foretell",
        )

    def forget(self, uri: str) -> None:
        self.turn.pop(uri, None)
        self.read.pop(uri, None)
        for file in self.told.pop(uri, set()) | {uri}:
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(file, []))


def make_server(undeclared: Undeclared = "error", dim: int = 32) -> ProgramServer:
    logging.getLogger("pygls").setLevel(logging.ERROR)
    server = ProgramServer(undeclared, dim)
    _watch_texts(server)
    _answer_about_names(server)
    _answer_about_texts(server)
    return server


def _watch_texts(server: ProgramServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(ls: ProgramServer, params: lsp.DidOpenTextDocumentParams) -> None:
        await ls.check(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: ProgramServer, params: lsp.DidChangeTextDocumentParams) -> None:
        await ls.check(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(ls: ProgramServer, params: lsp.DidSaveTextDocumentParams) -> None:
        for uri in list(ls.read):  # the saved file may be one that this text includes, or a table
            ls.read.pop(uri)
            await ls.check(uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: ProgramServer, params: lsp.DidCloseTextDocumentParams) -> None:
        ls.forget(params.text_document.uri)


def _answer_about_names(server: ProgramServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(ls: ProgramServer, params: lsp.HoverParams) -> lsp.Hover | None:
        program = ls.program(params.text_document.uri)
        found = program.hover(ls.offset(program.source, params.position))
        if found is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found[0]), ls.range(found[1]))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(ls: ProgramServer, params: lsp.DefinitionParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        program = ls.program(uri)
        spans = program.definitions(ls.offset(program.source, params.position))
        return [lsp.Location(ls.uri(program, one.source, uri), ls.range(one)) for one in spans]

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(ls: ProgramServer, params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        program = ls.program(uri)
        one = program.at(ls.offset(program.source, params.position))
        spans = [other.span for other in program.alike(one)] if one is not None else []
        return [lsp.Location(ls.uri(program, one.source, uri), ls.range(one)) for one in spans]

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(ls: ProgramServer, params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        uri = params.text_document.uri
        program = ls.program(uri)
        try:
            edits = program.rename(ls.offset(program.source, params.position), params.new_name)
        except RenameError as error:
            raise JsonRpcInvalidParams(str(error)) from None
        changes: dict[str, list[lsp.TextEdit]] = {}
        for span, text in edits:
            file = ls.uri(program, span.source, uri)
            if file in ls.workspace.text_documents and ls.workspace.text_documents[file].source != span.source.text:
                raise JsonRpcInvalidParams(f"save {span.source.name} first: this program includes it as it is on disk")
            changes.setdefault(file, []).append(lsp.TextEdit(ls.range(span), text))
        return lsp.WorkspaceEdit(changes=changes)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["(", ",", "-"]))
    def completion(ls: ProgramServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        program = ls.program(params.text_document.uri)
        found = program.completions(ls.offset(program.source, params.position))
        return [lsp.CompletionItem(one.text, kind=PROPOSALS[one.kind], detail=one.detail) for one in found]


def _answer_about_texts(server: ProgramServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(ls: ProgramServer, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        source = ls.program(params.text_document.uri).source
        try:
            text = format_program(source)
        except ProgramError:
            return None  # its mistakes are already shown
        return [] if text == source.text else [lsp.TextEdit(ls.range(Span(source, 0, len(source.text))), text)]

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def lenses(ls: ProgramServer, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        found = ls.program(params.text_document.uri).lenses()
        return [lsp.CodeLens(ls.range(span), lsp.Command(text, "")) for span, text in found]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(ls: ProgramServer, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        program = ls.program(params.text_document.uri)
        found: list[lsp.DocumentSymbol] = []
        for one in program.gathered.rules:
            rule = one.rule
            if rule.span.source is program.source:
                kind = lsp.SymbolKind.Constant if rule.is_fact else SYMBOLS[rule.kind]
                place, head = ls.range(rule.span), ls.range(rule.head.span)
                name = f"{'!' if rule.kind == 'remove' else ''}{pretty_atom(rule.head)}"
                found.append(lsp.DocumentSymbol(name, kind, place, head, "fact" if rule.is_fact else one.name))
        for one in program.names:
            if one.role == "declared" and one.span.source is program.source:
                place = ls.range(one.span)
                found.append(lsp.DocumentSymbol(one.name, lsp.SymbolKind.Class, place, place, "declaration"))
        return sorted(found, key=lambda one: (one.range.start.line, one.range.start.character))
