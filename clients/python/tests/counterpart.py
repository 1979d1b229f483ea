"""A server in pgfresh's place, which gives the answers that a test wants."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]
DATABASES = "/v1/databases"
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

    @property
    def leases(self) -> list[Any]:
        """How databases were wanted."""
        return [asked["body"] for asked in self.asked if asked["path"] == DATABASES]

    @property
    def failed_tests(self) -> list[str]:
        """The names of the tests that were said to have failed, one for each database."""
        failed = (asked["path"].partition("?failed=true")[1:] for asked in self.asked)
        return sorted(unquote(test.removeprefix("&test=")) for found, test in failed if found)


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


def keeps_failed() -> Answer:
    """The answers of a server that keeps the databases of failed tests."""
    numbers = itertools.count(1)

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["path"] == DATABASES:
            name = asked["body"].get("name", f"fresh_{next(numbers)}")
            parts = ("url", "jdbc_url", "socket_url", "template")
            told = {"name": name} | {part: f"{part}/{name}" for part in parts}
            return {"status": 201, "body": told}
        name, _, failed = asked["path"].removeprefix(DATABASES + "/").partition("?failed=")
        if failed:
            return {"status": 200, "body": {"url": f"kept/{name}_failed_{next(numbers)}"}}
        return {"status": 204}

    return answer
