"""A server in pgfresh's place, which gives the answers that a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]
SECRET = "5ec7e700000000000000000000000000"


class Counterpart(HTTPServer):
    """Answers by `answer`, where None is a closed connection, and keeps what was asked for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.answer = answer

    @property
    def control(self) -> str:
        """PGFRESH_CONTROL as it would be under `pgfresh run`."""
        return f"http://:{SECRET}@127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Counterpart

    def take(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {SECRET}"
        asked: dict[str, Any] = {"method": self.command, "path": self.path}
        if body := self.rfile.read(int(self.headers.get("Content-Length", 0))):
            asked["body"] = json.loads(body)
        self.server.asked.append(asked)
        answer = self.server.answer(asked)
        if answer is None:
            return
        text = json.dumps(answer["body"]).encode() if "body" in answer else b""
        self.send_response(answer["status"])
        if text:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = take

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def counterpart(answer: Answer) -> Iterator[Counterpart]:
    with Counterpart(answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
