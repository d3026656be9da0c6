// Starts `foretell lsp` and passes on what the editor asks. It has no dependencies: the protocol is a few messages of JSON.
"use strict";

const { spawn } = require("child_process");

/** One language server: requests with answers, and notifications. */
class Server {
  constructor(command, onNotice, onEnd) {
    this.next = 1;
    this.waiting = new Map();
    this.buffer = Buffer.alloc(0);
    this.onNotice = onNotice;
    this.process = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
    this.process.on("error", onEnd);
    this.process.stdin.on("error", () => {});
    this.process.stdout.on("data", (part) => this.read(part));
  }

  send(message) {
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }), "utf8");
    this.process.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.process.stdin.write(body);
  }

  tell(method, params) {
    this.send({ method, params });
  }

  ask(method, params) {
    const id = this.next++;
    this.send({ id, method, params });
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  read(part) {
    this.buffer = Buffer.concat([this.buffer, part]);
    for (;;) {
      const end = this.buffer.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = /Content-Length: (\d+)/i.exec(this.buffer.toString("ascii", 0, end));
      const start = end + 4;
      const size = Number(length[1]);
      if (this.buffer.length < start + size) return;
      const message = JSON.parse(this.buffer.toString("utf8", start, start + size));
      this.buffer = this.buffer.subarray(start + size);
      this.take(message);
    }
  }

  take(message) {
    if (message.method) {
      if (message.id !== undefined) this.send({ id: message.id, result: null });
      else this.onNotice(message.method, message.params);
      return;
    }
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (!waiting) return;
    if (message.error) waiting.reject(new Error(message.error.message));
    else waiting.resolve(message.result);
  }
}

let server;

async function activate(context) {
  const vscode = require("vscode");
  const range = (one) => new vscode.Range(one.start.line, one.start.character, one.end.line, one.end.character);
  const at = (document, position) => ({ textDocument: { uri: document.uri.toString() }, position });
  const places = (found) => (found || []).map((one) => new vscode.Location(vscode.Uri.parse(one.uri), range(one.range)));
  const shown = vscode.languages.createDiagnosticCollection("ndtt");
  const command = vscode.workspace.getConfiguration("ndtt").get("command");
  const failed = (error) => vscode.window.showErrorMessage(`${command.join(" ")}: ${error.message}. pip install 'foretell[lsp]'`);
  const show = (method, params) => {
    if (method !== "textDocument/publishDiagnostics") return;
    const found = params.diagnostics.map((one) => {
      const made = new vscode.Diagnostic(range(one.range), one.message, one.severity - 1);
      return Object.assign(made, { code: one.code, source: one.source });
    });
    shown.set(vscode.Uri.parse(params.uri), found);
  };
  server = new Server(command, show, failed);
  await server.ask("initialize", { processId: process.pid, rootUri: null, capabilities: {} });
  server.tell("initialized", {});

  const isOurs = (document) => document.languageId === "ndtt" && document.uri.scheme === "file";
  const open = (document) => {
    if (!isOurs(document)) return;
    const { uri, version } = document;
    const textDocument = { uri: uri.toString(), languageId: "ndtt", version, text: document.getText() };
    server.tell("textDocument/didOpen", { textDocument });
  };
  const notice = (method, more) => (document) => {
    if (isOurs(document)) server.tell(method, { textDocument: { uri: document.uri.toString() }, ...more });
  };
  vscode.workspace.textDocuments.forEach(open);
  context.subscriptions.push(
    shown,
    vscode.workspace.onDidOpenTextDocument(open),
    vscode.workspace.onDidSaveTextDocument(notice("textDocument/didSave")),
    vscode.workspace.onDidCloseTextDocument(notice("textDocument/didClose")),
    vscode.workspace.onDidChangeTextDocument(({ document }) => {
      if (!isOurs(document)) return;
      const textDocument = { uri: document.uri.toString(), version: document.version };
      server.tell("textDocument/didChange", { textDocument, contentChanges: [{ text: document.getText() }] });
    }),
  );

  const { languages } = vscode;
  const kinds = { 3: vscode.CompletionItemKind.Function, 6: vscode.CompletionItemKind.Variable };
  const edited = (found) => (found || []).map((one) => new vscode.TextEdit(range(one.range), one.newText));
  const register = (how, provider, ...more) => context.subscriptions.push(languages[how]("ndtt", provider, ...more));
  register("registerHoverProvider", {
    provideHover: async (document, position) => {
      const found = await server.ask("textDocument/hover", at(document, position));
      return found && new vscode.Hover(new vscode.MarkdownString(found.contents.value), range(found.range));
    },
  });
  register("registerDefinitionProvider", {
    provideDefinition: async (document, position) => places(await server.ask("textDocument/definition", at(document, position))),
  });
  register("registerReferenceProvider", {
    provideReferences: async (document, position) => {
      const asked = { ...at(document, position), context: { includeDeclaration: true } };
      return places(await server.ask("textDocument/references", asked));
    },
  });
  register("registerRenameProvider", {
    provideRenameEdits: async (document, position, newName) => {
      const found = await server.ask("textDocument/rename", { ...at(document, position), newName });
      const made = new vscode.WorkspaceEdit();
      for (const [uri, edits] of Object.entries(found.changes)) made.set(vscode.Uri.parse(uri), edited(edits));
      return made;
    },
  });
  register("registerDocumentFormattingEditProvider", {
    provideDocumentFormattingEdits: async (document, options) =>
      edited(await server.ask("textDocument/formatting", { ...at(document), options })),
  });
  register("registerCodeLensProvider", {
    provideCodeLenses: async (document) => {
      const found = await server.ask("textDocument/codeLens", at(document));
      return (found || []).map((one) => new vscode.CodeLens(range(one.range), one.command));
    },
  });
  register(
    "registerCompletionItemProvider",
    {
      provideCompletionItems: async (document, position) => {
        const found = await server.ask("textDocument/completion", at(document, position));
        return (found || []).map((one) =>
          Object.assign(new vscode.CompletionItem(one.label, kinds[one.kind]), { detail: one.detail }),
        );
      },
    },
    "(",
    ",",
    "-",
  );
}

async function deactivate() {
  if (!server) return;
  await server.ask("shutdown");
  server.tell("exit");
}

module.exports = { Server, activate, deactivate };
