"""Tests a server on another machine, which `PGFRESH_CONTROL=https://…` names.

127.0.0.2 stands for the other machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from pgfresh import Error, _server, fresh_database

HOST = "127.0.0.2"
PASSWORD = "far:away"
TIMEOUT = 60
"""How long a lease may take to end, in seconds."""


class Remote:
    """A pgfresh server that other machines can use."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self.port = 0
        self.start()

    def start(self) -> None:
        """Starts the server. A restarted server keeps its port."""
        words = ["serve", "--json", "--listen", HOST, "--port", str(self.port), *self._options]
        environment = {
            name: value for name, value in os.environ.items() if name != "PGFRESH_CONTROL"
        }
        self._process = subprocess.Popen(
            [os.environ.get("PGFRESH_BIN", "pgfresh"), *words],
            env=environment | {"PGFRESH_PASSWORD": PASSWORD},
            cwd=self._directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        ready: dict[str, Any] = json.loads(self._process.stdout.readline())
        self.port = ready["port"]
        self.root = ready.get("root_certificate", str(self._directory / "server.crt"))

    def stop(self) -> None:
        self._process.communicate()

    @property
    def control(self) -> str:
        return f"https://:{quote(PASSWORD)}@{HOST}:{self.port}"


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    """A server that this process uses, with the certificate that pgfresh generates."""
    yield from used(Remote(tmp_path), monkeypatch)


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    """A server that this process uses, with the test's own certificate."""
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj"
    name = ["/CN=pgfresh", "-addext", f"subjectAltName=IP:{HOST}"]
    files = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "server.key"]
    files += ["-out", "server.crt"]
    subprocess.run([*words.split(), *name, *files], cwd=tmp_path, check=True, capture_output=True)
    options = ["--tls-cert", "server.crt", "--tls-key", "server.key"]
    yield from used(Remote(tmp_path, *options), monkeypatch)


def used(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    monkeypatch.delenv("PGFRESH_HOLDER", raising=False)
    monkeypatch.setenv("PGFRESH_CONTROL", remote.control)
    monkeypatch.setenv("PGSSLROOTCERT", remote.root)
    forget(monkeypatch)
    yield remote
    forget(monkeypatch)
    remote.stop()


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for lifeline in [*_server._lifelines]:
        if isinstance(lifeline, HTTPResponse):
            lifeline.close()
            _server._lifelines.remove(lifeline)
    monkeypatch.setattr(_server, "_found", {})
    monkeypatch.setattr(_server, "_failed", {})


def refused(monkeypatch: pytest.MonkeyPatch) -> Error:
    forget(monkeypatch)
    with pytest.raises(Error) as raised:
        fresh_database()
    return raised.value


def test_remote_database_is_verified(remote: Remote) -> None:
    with fresh_database(record=True) as database:
        for url in (database.url, database.jdbc_url):
            assert f"{HOST}:{remote.port}/{database.name}" in url
            assert "sslmode=verify-full&sslrootcert=%2F" in url
        with database.statements() as ran, psycopg.connect(database.url) as connection:
            connection.execute("CREATE TABLE made ()")
        assert len(ran) == 3
        database.reset()
        with psycopg.connect(database.url) as connection:
            connection.execute("CREATE TABLE made ()")


def test_leases_end_with_remote_process(remote: Remote) -> None:
    program = "from pgfresh import fresh_database as f; d = f(); print(d.name, flush=True); input()"
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        name = process.stdout.readline().strip()
        path = f"/v1/databases/{name}"
        assert _server.server().request("GET", path)["name"] == name
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + TIMEOUT
    with pytest.raises(Error, match="is not leased"):
        while time.monotonic() < deadline:
            _server.server().request("GET", path)
            time.sleep(0.05)


def test_wrong_certificates_are_refused(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    former = Path(remote.root).read_bytes()
    remote.stop()
    remote.start()
    copy = Path(remote._directory) / "former.crt"
    copy.write_bytes(former)
    monkeypatch.setenv("PGSSLROOTCERT", str(copy))
    error = refused(monkeypatch)
    assert error.message.startswith(f"could not talk to pgfresh at {HOST}:{remote.port}: ")
    assert error.hint == (
        "PGSSLROOTCERT must name the file of the server's root certificate. "
        "pgfresh makes a new one at each start."
    )
    monkeypatch.setenv("PGSSLROOTCERT", "/nowhere/root.crt")
    error = refused(monkeypatch)
    assert error.message == (
        'cannot read the certificate "/nowhere/root.crt", which PGSSLROOTCERT names: '
        "No such file or directory"
    )


def test_wrong_passwords_are_refused(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGFRESH_CONTROL", remote.control.replace("far", "near"))
    error = refused(monkeypatch)
    assert (error.message, error.hint) == (
        "the token is missing or wrong",
        "Check the password in PGFRESH_CONTROL.",
    )


def test_unreachable_servers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    monkeypatch.setenv("PGFRESH_CONTROL", f"https://:secret@{HOST}:{port}")
    error = refused(monkeypatch)
    assert error.message.startswith(f"could not talk to pgfresh at {HOST}:{port}: ")
    assert error.hint == (
        "Check the host and the port in PGFRESH_CONTROL, "
        'and that "pgfresh serve --listen" runs there.'
    )


def test_restarted_server_ends_holder(certified: Remote) -> None:
    fresh_database()
    certified.stop()
    certified.start()
    with pytest.raises(Error) as raised:
        fresh_database()
    assert raised.value.hint == "The server was restarted. Start the tests again."
