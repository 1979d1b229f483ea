"""The server of pgfresh that this process uses: found or started once, asked over HTTP.

Under `pgfresh run` the environment says where it is. Otherwise the binary is started, which joins
or makes a server; its standard input is a pipe that we hold. When this process ends, however, the
pipe is closed, and what was held for us goes.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sysconfig
import threading
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit

ARGUMENTS = ("serve", "--shared", "--json")
"""What the binary is started with."""

PATIENCE = 600
"""Seconds that an answer may take: a copy of a large template is the longest."""

STOP = 10
"""Seconds that the binary may take to end after its standard input has been closed."""


class Error(Exception):
    """What pgfresh refuses or could not do, in its words; `code` is an SQLSTATE."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code, detail, hint)
        self.message = message
        self.code = code
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        detail = f"\nDETAIL:  {self.detail}" if self.detail else ""
        hint = f"\nHINT:  {self.hint}" if self.hint else ""
        return f"{self.message}{detail}{hint}"


Error.__module__ = "pgfresh"


class Server:
    """Where it is, what it wants to hear, and for whom it holds our databases."""

    def __init__(self, host: str, port: int, secret: str, holder: str | None) -> None:
        self._host = host
        self._port = port
        self._secret = secret
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.holder = holder

    def environment(self) -> dict[str, str]:
        """The variables with which another process finds it and holds databases for us."""
        control = f"http://:{quote(self._secret, safe='')}@{self._where}"
        holder = {"PGFRESH_HOLDER": self.holder} if self.holder else {}
        return {"PGFRESH_CONTROL": control} | holder

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer's body, empty if it has none."""
        headers = {"Authorization": f"Bearer {self._secret}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = HTTPConnection(self._host, self._port, timeout=PATIENCE)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            raise Error(
                f"could not talk to pgfresh at {self._where}: {error}", hint=_GONE
            ) from error
        finally:
            connection.close()
        if response.status >= 300:
            raise _refusal(response.status, answer)
        return json.loads(answer) if answer else {}


_GONE = (
    "If its server was stopped, start the tests again. "
    "If PGFRESH_CONTROL names a run that is over, unset it."
)

_SET = "Set PGFRESH_BIN to where pgfresh is, or unset it."
_CHECK = "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one."

_HINTS = {
    'set "close_sessions"': "call reset(close_sessions=True)",
    'Lease it with "record": true': "Lease it with record=True, or mark the test with it",
}
"""What hints say to users of HTTP, and what they say here."""


def _refusal(status: int, answer: bytes) -> Error:
    try:
        return _error(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return Error(f"pgfresh answered with status {status}")


def _error(told: Mapping[str, Any]) -> Error:
    hint = told.get("hint")
    for there, here in _HINTS.items():
        hint = hint and hint.replace(there, here)
    return Error(told["message"], code=told.get("code"), detail=told.get("detail"), hint=hint)


_found: Server | None = None
_failed: Error | None = None
"""Why there is none. It is not tried again: the setup of a template would fail for each test."""
_finding = threading.Lock()


def server() -> Server:
    """The server of this process, which is started if it is needed for the first time."""
    global _failed, _found
    with _finding:
        if _found is None and _failed is None:
            control = os.environ.get("PGFRESH_CONTROL")
            try:
                _found = _handed_on(control) if control else _started()
            except Error as error:
                _failed = error.with_traceback(None)
        if _failed is not None:
            # Another one, because an error that is raised gets a traceback.
            raise Error(_failed.message, detail=_failed.detail, hint=_failed.hint)
        assert _found is not None
        return _found


def is_found() -> bool:
    """Whether `server` has nothing to start."""
    return _found is not None


def _handed_on(control: str) -> Server:
    url = urlsplit(control)
    try:
        host, port, secret = url.hostname, url.port, url.password
    except ValueError:
        host = port = secret = None
    if url.scheme != "http" or not (host and port and secret):
        raise Error("cannot read PGFRESH_CONTROL: it is not http://:SECRET@HOST:PORT")
    return Server(host, port, unquote(secret), os.environ.get("PGFRESH_HOLDER"))


def _carried() -> str | None:
    """The binary of our version, if it came in one wheel with us."""
    return shutil.which("pgfresh", path=sysconfig.get_path("scripts"))


def _started() -> Server:
    named = os.environ.get("PGFRESH_BIN")
    path = shutil.which(named or _carried() or "pgfresh")
    if path is None and named:
        if os.path.exists(named):
            raise _not_run(named, "it is not an executable file")
        raise Error(f'cannot find "{named}", which PGFRESH_BIN names', hint=_SET)
    if path is None:
        raise Error(
            'cannot find "pgfresh"',
            hint="Install it with the script of its release, sh pgfresh-install.sh, "
            "or set PGFRESH_BIN to where it is.",
        )
    # In a session of its own Ctrl-C does not reach it: tests still give their databases back.
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [path, *ARGUMENTS], stdin=pipe, stdout=pipe, start_new_session=True
        )
    except OSError as error:
        raise _not_run(path, error.strerror or str(error)) from error
    assert process.stdout is not None
    try:
        found = _place(process.stdout.readline(), path)
    except EOFError:
        raise _ended(_end(process)) from None
    except Error:
        _end(process)
        raise
    except BaseException:
        # Ctrl-C waits for nothing.
        _close(process)
        raise
    atexit.register(_stop, process, os.getpid())
    return found


def _place(line: bytes, path: str) -> Server:
    """What the line of the binary tells. There is none if it has ended."""
    if not line.endswith(b"\n"):
        raise EOFError
    try:
        told = json.loads(line)
        if "error" in told:
            raise _error(told["error"])
        url = urlsplit(told["http_url"])
        if not (url.hostname and url.port):
            raise ValueError
        return Server(url.hostname, url.port, told["password"], told.get("holder"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Error(f'could not read what "{path}" printed', hint=_CHECK) from None


def _not_run(path: str, why: str) -> Error:
    return Error(f'cannot run "{path}": {why}', hint=_SET)


def _ended(code: int) -> Error:
    how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
    return Error(f"pgfresh {how} before it was ready", hint="Its own message is on standard error.")


def _stop(process: subprocess.Popen[bytes], owner: int) -> None:
    """Closes the lifeline. A forked child has a copy of it, and no child to wait for."""
    _close(process)
    if os.getpid() == owner:
        process.wait(STOP)
    else:
        process.returncode = 0


def _end(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has said all. What is not pgfresh need not end by itself."""
    _close(process)
    try:
        return process.wait(STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
