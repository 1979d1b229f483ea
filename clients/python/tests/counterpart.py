"""Fake pgfresh server whose responses come from a test."""

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
    """Records all requests in `requests` and responds with the result of `answer`.

    If `answer` returns None, closes the connection.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.answer = answer

    @property
    def control(self) -> str:
        """Value of `PGFRESH_CONTROL`, as `pgfresh run` sets it."""
        return f"http://:{SECRET}@127.0.0.1:{self.server_port}"

    @property
    def leases(self) -> list[Any]:
        """Bodies of the lease requests."""
        return [request["body"] for request in self.requests if request["path"] == DATABASES]

    @property
    def failed_tests(self) -> list[str]:
        """Sorted names of the tests that the client reported as failed, one for each database."""
        failed = (request["path"].partition("?failed=true")[1:] for request in self.requests)
        return sorted(unquote(test.removeprefix("&test=")) for found, test in failed if found)


class Handler(BaseHTTPRequestHandler):
    server: Counterpart

    def respond(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {SECRET}"
        request: dict[str, Any] = {"method": self.command, "path": self.path}
        if body := self.rfile.read(int(self.headers.get("Content-Length", 0))):
            request["body"] = json.loads(body)
        self.server.requests.append(request)
        answer = self.server.answer(request)
        if answer is None:
            return
        text = json.dumps(answer["body"]).encode() if "body" in answer else b""
        self.send_response(answer["status"])
        if 300 <= answer["status"] < 400:
            self.send_header("Location", "/elsewhere")
        if text:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = respond

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
    """Returns the responses of a server that keeps the databases of failed tests."""
    numbers = itertools.count(1)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["path"] == DATABASES:
            name = request["body"].get("name", f"fresh_{next(numbers)}")
            parts = ("url", "jdbc_url", "socket_url", "template")
            body = {"name": name} | {part: f"{part}/{name}" for part in parts}
            return {"status": 201, "body": body}
        name, _, failed = request["path"].removeprefix(DATABASES + "/").partition("?failed=")
        if failed:
            return {"status": 200, "body": {"url": f"kept/{name}_failed_{next(numbers)}"}}
        return {"status": 204}

    return answer
