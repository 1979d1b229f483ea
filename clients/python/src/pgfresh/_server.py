"""Client of the HTTP API: finds or starts one pgfresh server for the process.

Under `pgfresh run`, `PGFRESH_CONTROL` has the address. Otherwise the client starts the binary,
which joins or starts the background server. The binary's standard input is a pipe, the lifeline:
however this process ends, the pipe closes, and pgfresh releases the databases of this process. For
a server on another machine, the lifeline is a connection that this process keeps open.

A forked child closes its copies of the lifelines, because pgfresh must release the databases of the
parent also if the child outlives the parent. The first lease of the child finds another server.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, unquote, urlsplit

ARGUMENTS = ("serve", "--shared", "--json")
"""Arguments of the binary."""

RESPONSE_TIMEOUT = 600
"""Timeout for a response, in seconds. Copying a large template takes longest."""

CONNECT_TIMEOUT = 30
"""Timeout for connecting to another machine, in seconds."""

STOP_TIMEOUT = 10
"""How long the binary may take to end after its standard input closes, in seconds."""


class Error(Exception):
    """Error from pgfresh or from this client.

    Programs can rely on `code`, an SQLSTATE or a pgfresh error code, and on `remedy`, which names
    the action that resolves the error. Both are None if the error is from this client. Texts may
    change.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
        remedy: str | None = None,
    ) -> None:
        # Pickle and copy call the class with these arguments, and then set the attributes.
        super().__init__(message)
        self.message = message
        self.code = code
        self.detail = detail
        self.hint = hint
        self.remedy = remedy

    def __str__(self) -> str:
        detail = f"\nDETAIL:  {self.detail}" if self.detail else ""
        hint = f"\nHINT:  {self.hint}" if self.hint else ""
        return f"{self.message}{detail}{hint}"


Error.__module__ = "pgfresh"


class Server:
    """Address and password of a pgfresh server.

    `holder` identifies the process whose databases pgfresh releases when the process ends. It is
    None under `pgfresh run`. `trust` verifies the server's certificate, for `https`.
    """

    def __init__(
        self, host: str, port: int, secret: str, holder: str | None, trust: Trust | None = None
    ) -> None:
        self._host = host
        self._port = port
        self._secret = secret
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._trust = trust
        self.holder = holder
        if trust is not None and not holder:
            self.holder = self._hold()

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that make another process use this server.

        pgfresh releases the databases of the other process when the holder of this server ends.
        """
        scheme = "http" if self._trust is None else "https"
        control = f"{scheme}://:{quote(self._secret, safe='')}@{self._where}"
        holder = {"PGFRESH_HOLDER": self.holder} if self.holder else {}
        return {"PGFRESH_CONTROL": control} | holder

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        needs: Mapping[str, type | tuple[type, ...]] | None = None,
    ) -> dict[str, Any]:
        """Sends a request and returns the response body, or an empty dict if there is no body.

        `needs` has the members that the body must have, and their types. Raises `Error` if one is
        missing, for a status of 300 or more, and if the connection fails.
        """
        try:
            with self._send(method, path, body) as response:
                answer = response.read()
        except (OSError, HTTPException) as error:
            raise self._lost(error) from error
        if response.status >= 300:
            raise _refusal(response.status, answer)
        fields = self._parse(answer) if answer else {}
        for name, kind in (needs or {}).items():
            if not isinstance(fields.get(name), kind):
                raise self._unreadable(f'it has no "{name}"')
        return fields if self._trust is None else self._trust.add_to(fields)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> HTTPResponse:
        """Sends a request on a connection that closes after the response."""
        headers = {"Authorization": f"Bearer {self._secret}", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connect()
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _connect(self) -> HTTPConnection:
        if self._trust is None:
            return HTTPConnection(self._host, self._port, timeout=RESPONSE_TIMEOUT)
        connection = HTTPSConnection(
            self._host, self._port, timeout=CONNECT_TIMEOUT, context=self._trust.context
        )
        connection.connect()
        connection.sock.settimeout(RESPONSE_TIMEOUT)
        return connection

    def _hold(self) -> str:
        """Opens the lifeline and returns a holder, which ends when the lifeline closes."""
        try:
            response = self._send("GET", "/v1/hold", None)
            if response.status >= 300:
                raise _refusal(response.status, response.read())
            holder = self._parse(response.readline()).get("holder")
            if not isinstance(holder, str):
                raise self._unreadable("it names no holder")
        except (OSError, HTTPException) as error:
            raise self._lost(error) from error
        _lifelines.append(response)
        return holder

    def _parse(self, answer: bytes) -> dict[str, Any]:
        """Returns the JSON object in a response."""
        try:
            fields = json.loads(answer)
        except ValueError as error:
            raise self._unreadable(str(error)) from None
        if not isinstance(fields, dict):
            raise self._unreadable("it is not a JSON object")
        return fields

    def _unreadable(self, why: str) -> Error:
        return Error(f"could not read the response of pgfresh at {self._where}: {why}")

    def _lost(self, error: Exception) -> Error:
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = _UNTRUSTED
        else:
            hint = _GONE if self._trust is None else _UNREACHABLE
        return Error(f"could not talk to pgfresh at {self._where}: {error}", hint=hint)


class Trust:
    """Certificates that a client trusts: those in `PGSSLROOTCERT`, otherwise the system's.

    Raises `Error` if the client can't read the certificates.
    """

    def __init__(self) -> None:
        root = os.environ.get("PGSSLROOTCERT") or "system"
        self._parameters = "sslmode=verify-full"
        if root == "system":
            self.context = ssl.create_default_context()
            return
        self._parameters += f"&sslrootcert={quote(root, safe='')}"
        try:
            self.context = ssl.create_default_context(cafile=root)
        except OSError as error:
            why = error.strerror or str(error)
            raise Error(
                f'cannot read the certificate "{root}", which PGSSLROOTCERT names: {why}'
            ) from error

    def add_to(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Adds the parameters that make drivers verify the server to the URLs in a response."""
        for key in ("url", "jdbc_url", "replica_url"):
            if key in fields:
                fields[key] += ("&" if "?" in fields[key] else "?") + self._parameters
        return fields


_GONE = (
    "If its server was stopped, start the tests again. "
    "If PGFRESH_CONTROL names a run that is over, unset it."
)

_UNREACHABLE = (
    'Check the host and the port in PGFRESH_CONTROL, and that "pgfresh serve --listen" runs there.'
)
_UNTRUSTED = (
    "PGSSLROOTCERT must name the file of the server's root certificate. "
    "pgfresh makes a new one at each start."
)

_SET = "Set PGFRESH_BIN to where pgfresh is, or unset it."
_CHECK = "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one."

_HINTS = {
    "begin_hold": "The server was restarted. Start the tests again.",
    "close_sessions": "Close them first, or call reset(close_sessions=True).",
    "record": "Lease it with record=True, or mark the test with it.",
    "send_secret": "Check the password in PGFRESH_CONTROL.",
}
"""Hints that replace hints about HTTP API options, by remedy."""


def _refusal(status: int, answer: bytes) -> Error:
    try:
        return _error(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return Error(f"pgfresh answered with status {status}")


def _error(fields: Mapping[str, Any]) -> Error:
    if not isinstance(fields["message"], str):
        raise TypeError
    optional = {key: fields.get(key) for key in ("code", "detail", "remedy")}
    hint = _HINTS.get(optional["remedy"] or "", fields.get("hint"))
    return Error(fields["message"], hint=hint, **optional)


_found: dict[tuple[str, ...], Server] = {}
"""Servers of this process, by the `pgfresh serve` options that each server was started with."""
_failed: dict[tuple[str, ...], Error] = {}
"""Errors of failed starts. Later calls raise them again, because a retry could take as long."""
_finding = threading.Lock()
_lifelines: list[subprocess.Popen[bytes] | HTTPResponse] = []
"""Binaries and responses that this process keeps open."""


def server(*options: str) -> Server:
    """Returns the server of this process. The first call finds or starts the server.

    With options of `pgfresh serve`, the client starts or joins a background server that has these
    options, even within `pgfresh run`.

    Raises `Error` if there is no server. Later calls raise the same error.
    """
    with _finding:
        if options not in _found and options not in _failed:
            control = None if options else os.environ.get("PGFRESH_CONTROL")
            try:
                _found[options] = _from_environment(control) if control else _start(options)
            except Error as error:
                _failed[options] = error.with_traceback(None)
        if options in _failed:
            # Create a new object for each call, because each raise adds to an error's traceback.
            failed = _failed[options]
            raise Error(
                failed.message,
                code=failed.code,
                detail=failed.detail,
                hint=failed.hint,
                remedy=failed.remedy,
            )
        return _found[options]


def is_found() -> bool:
    """Whether the process has found or started its server."""
    return () in _found


def _from_environment(control: str) -> Server:
    url = urlsplit(control)
    try:
        host, port, secret = url.hostname, url.port, unquote(url.password or "")
    except ValueError:
        host = port = secret = None
    # http.client's error about a header with other characters would contain the secret.
    is_secret = secret is not None and re.fullmatch("[!-~]+", secret)
    if url.scheme not in ("http", "https") or not (host and port and secret and is_secret):
        raise Error("cannot read PGFRESH_CONTROL: it is not http[s]://:SECRET@HOST:PORT")
    trust = Trust() if url.scheme == "https" else None
    return Server(host, port, secret, os.environ.get("PGFRESH_HOLDER"), trust)


def _bundled_binary() -> str | None:
    """Returns the path of the binary in this client's wheel, or None if the wheel has no binary."""
    return shutil.which("pgfresh", path=sysconfig.get_path("scripts"))


_COMMANDS = {
    "linux": "make install",
    "darwin": "cargo install --locked --path crates/pgfresh",
}
"""Commands that install pgfresh from a checkout, by sys.platform. "make install" isn't for macOS,
because its scripts need a newer bash than macOS has."""


def _install_hint(platform: str) -> str:
    """Returns the hint for a missing binary. `platform` is a value of `sys.platform`."""
    if command := _COMMANDS.get(platform):
        return f'Run "{command}" in a checkout of pgfresh, or set PGFRESH_BIN to where it is.'
    return (
        f"pgfresh runs on Linux and macOS, not on {platform}. "
        "Run the tests in WSL 2, or set PGFRESH_CONTROL to a server on another machine."
    )


def _start(options: tuple[str, ...] = ()) -> Server:
    named = os.environ.get("PGFRESH_BIN")
    path = shutil.which(named or _bundled_binary() or "pgfresh")
    if path is None and named:
        if os.path.exists(named):
            raise _not_run(named, "it is not an executable file")
        raise Error(f'cannot find "{named}", which PGFRESH_BIN names', hint=_SET)
    if path is None:
        raise Error('cannot find "pgfresh"', hint=_install_hint(sys.platform))
    # Ctrl-C doesn't reach a process in another session, so tests can still release databases.
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [path, *ARGUMENTS, *options], stdin=pipe, stdout=pipe, start_new_session=True
        )
    except OSError as error:
        raise _not_run(path, error.strerror or str(error)) from error
    _lifelines.append(process)
    assert process.stdout is not None
    try:
        return _parse_line(process.stdout.readline(), path)
    except EOFError:
        raise _ended(_end(process)) from None
    except Error:
        _end(process)
        raise
    except BaseException:
        # After Ctrl-C, don't wait for the binary to end.
        _close(process)
        raise


def _parse_line(line: bytes, path: str) -> Server:
    """Parses the line that the binary prints when it is ready.

    Raises `EOFError` if the binary ended before it printed a line, and `Error` if the line
    describes an error.
    """
    if not line.endswith(b"\n"):
        raise EOFError
    try:
        fields = json.loads(line)
        if "error" in fields:
            raise _error(fields["error"])
        url = urlsplit(fields["http_url"])
        if not (url.hostname and url.port):
            raise ValueError
        return Server(url.hostname, url.port, fields["password"], fields.get("holder"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Error(f'could not read what "{path}" printed', hint=_CHECK) from None


def _not_run(path: str, why: str) -> Error:
    return Error(f'cannot run "{path}": {why}', hint=_SET)


def _ended(code: int) -> Error:
    how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
    return Error(f"pgfresh {how} before it was ready", hint="Its own message is on standard error.")


@atexit.register
def _stop() -> None:
    """Closes the lifelines, and waits for the binaries to end."""
    for lifeline in [*_lifelines]:
        if isinstance(lifeline, HTTPResponse):
            lifeline.close()
            continue
        _close(lifeline)
        # A child that C code forked can hold the lifeline longer.
        with suppress(subprocess.TimeoutExpired):
            lifeline.wait(STOP_TIMEOUT)


def _leave_to_parent() -> None:
    """Closes the copies of the lifelines in a forked child, and forgets the servers."""
    global _finding
    # Another thread of the parent can be in `server`. It doesn't exist in the child.
    is_starting, _finding = _finding.locked(), threading.Lock()
    for lifeline in _lifelines:
        if isinstance(lifeline, HTTPResponse):
            lifeline.close()
            continue
        assert lifeline.stdin is not None and lifeline.stdout is not None
        lifeline.stdin.close()
        # The read of the other thread has locked the output of the last binary.
        if not is_starting or lifeline is not _lifelines[-1]:
            lifeline.stdout.close()
        # The child can't wait for the process, because it isn't the child's child.
        lifeline.returncode = 0
    _lifelines.clear()
    _found.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Closes the lifeline and returns the exit code.

    Kills a program that doesn't end, because `PGFRESH_BIN` may name a program that isn't pgfresh.
    """
    _close(process)
    try:
        return process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _close(process: subprocess.Popen[bytes]) -> None:
    _lifelines.remove(process)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
