"""A client of `yaml-language-server`, which speaks the Language Server Protocol over the server's
standard input and output.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS = {
    "yaml": {"validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}}
}
CAPABILITIES = {
    "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}},
    "textDocument": {
        "completion": {
            "completionItem": {"snippetSupport": True, "documentationFormat": ["markdown"]}
        },
        "hover": {"contentFormat": ["markdown"]},
        "publishDiagnostics": {},
    },
}
SECONDS = 60  # A busy machine needs a while for the first answer.


class LanguageServer:
    """A running language server, and the documents that are open in it.

    Args:
        command: The program and its arguments.
        folder: The folder of the workspace.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        self._received: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._last_id = 0
        self.request(
            "initialize",
            {"processId": None, "rootUri": folder.as_uri(), "capabilities": CAPABILITIES},
        )
        self._notify("initialized", {})

    def open(self, file: Path, text: str) -> list[dict[str, Any]]:
        """Open a document, and return its diagnostics.

        Args:
            file: The document. Each call needs another path, which need not exist.
            text: The text in the editor.
        """
        document = {"uri": file.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self._notify("textDocument/didOpen", {"textDocument": document})

        def answers(message: dict[str, Any]) -> bool:
            return (
                message.get("method") == "textDocument/publishDiagnostics"
                and message["params"]["uri"] == file.as_uri()
            )

        diagnostics: list[dict[str, Any]] = self._wait_for(answers)["params"]["diagnostics"]
        return diagnostics

    def complete(self, file: Path, line: int, character: int) -> list[dict[str, Any]]:
        """Return the completions at a place in an open document.

        Lines and characters count from 0.
        """
        answer = self.request("textDocument/completion", _place(file, line, character))
        items: list[dict[str, Any]] = answer["items"] if isinstance(answer, dict) else answer or []
        return items

    def hover(self, file: Path, line: int, character: int) -> str:
        """Return the text that the editor shows at a place in an open document; "" if there is
        none.
        """
        answer = self.request("textDocument/hover", _place(file, line, character))
        return str(answer["contents"]["value"]) if answer else ""

    def request(self, method: str, params: Any) -> Any:
        """Send a request, and return its result."""
        self._last_id += 1
        own = self._last_id
        self._send({"id": own, "method": method, "params": params})
        answer = self._wait_for(
            lambda message: message.get("id") == own and "method" not in message
        )
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def close(self) -> None:
        """End the server."""
        try:
            self.request("shutdown", None)
            self._notify("exit", None)
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()

    def _notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the next message that is wanted.

        Answer the requests of the server meanwhile, and ignore its other messages.
        """
        while (message := self._received.get(timeout=SECONDS)) is not None:
            if wanted(message):
                return message
            if "id" in message and "method" in message:
                self._send({"id": message["id"], "result": _result(message)})
        raise AssertionError(f"the language server has ended with exit code {self._process.wait()}")

    def _read(self) -> None:
        """Put each message of the server into the queue, and None at the end."""
        stream = self._process.stdout
        assert stream is not None
        while header := stream.readline():
            length = 0
            while header.strip():
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
                header = stream.readline()
            self._received.put(json.loads(stream.read(length)))
        self._received.put(None)


def _result(request: dict[str, Any]) -> Any:
    """Return the client's answer to a request of the server."""
    if request["method"] == "workspace/configuration":
        return [SETTINGS.get(item.get("section", "")) for item in request["params"]["items"]]
    return None


def _place(file: Path, line: int, character: int) -> dict[str, Any]:
    return {
        "textDocument": {"uri": file.as_uri()},
        "position": {"line": line, "character": character},
    }
