"""Leases, resets, measures and releases databases."""

from __future__ import annotations

import math
import os
import sys
from types import TracebackType
from typing import Any
from urllib.parse import quote

from ._faults import FaultStatus, Moment, body, status, unfired_message
from ._server import Error, Server, server
from ._statements import Statements

_LEASED = dict.fromkeys(("name", "url", "jdbc_url", "socket_url", "template"), str)
_MEASURED: dict[str, type | tuple[type, ...]] = {
    "count": int,
    "seconds": (int, float),
    "complete": bool,
    "statements": list,
}
"""Members that the responses must have, and their types."""


class Database:
    """A leased copy of a template.

    As a context manager, it releases the database at the end of the block. If an exception ends
    the block, the client reports the test as failed. Only the process that leased the database
    releases it: in a forked child, the methods that release it do nothing.
    """

    name: str
    """Name of the database, unique on its server."""
    url: str
    """URL for drivers and programs that read libpq URLs, `postgresql://…`."""
    jdbc_url: str
    """URL for JDBC drivers, `jdbc:postgresql://…`."""
    socket_url: str
    """URL with the server's unix socket, `postgresql://…`, without a password."""
    replica_url: str | None
    """URL of the replica, `postgresql://…`. None if the template has no replica."""
    template: str
    """Name of the template that the database is a copy of."""
    recorded: bool
    """Whether pgfresh records the statements. `record=True`, or `[budget]` in `pgfresh.toml`,
    enables this."""

    def __init__(
        self,
        *,
        template: str | None = None,
        name: str | None = None,
        isolation: str | None = None,
        record: bool = False,
        _server: Server | None = None,
    ) -> None:
        self._server = _server or server()
        request: dict[str, Any] = {
            "template": template,
            "name": name,
            "isolation": isolation,
            "holder": self._server.holder,
            "record": record or None,
        }
        self._request = {key: value for key, value in request.items() if value is not None}
        self._test: str | None = None
        self._failed: str | None = None
        """First failed test that used the database since the lease or the last reset."""
        self._skipped = False
        """Whether the test was skipped. The faults of a skipped test don't need to fire."""
        self._kept: list[tuple[str, str]] = []
        """Failed tests, each with the URL of its kept database."""
        self._limits: dict[str, Any] = {}
        self._exceeded: list[str] = []
        self._resets = 0
        self._next: tuple[str, dict[str, Any]] | None = None
        """Test that uses the database from the next reset on, and its limits."""
        self._faults_requested = False
        """Whether this object has requested a fault since the lease or the last reset."""
        self._lease()

    def _lease(self) -> None:
        response = self._server.request("POST", "/v1/databases", self._request, needs=_LEASED)
        self._owner: int | None = os.getpid()
        self.name = response["name"]
        self.url = response["url"]
        self.jdbc_url = response["jdbc_url"]
        self.socket_url = response["socket_url"]
        self.replica_url = response.get("replica_url")
        self.template = response["template"]
        self.recorded = response.get("recorded", False)
        self._faults_requested = False

    def url_for(self, driver: str) -> str:
        """Returns the SQLAlchemy URL for a driver.

        For example, `url_for("psycopg")` returns `postgresql+psycopg://…`.
        """
        return self.url.replace("postgresql://", f"postgresql+{driver}://", 1)

    def reset(self, *, close_sessions: bool = False) -> None:
        """Restores the database to the state of its template.

        Raises `Error` if sessions are open, unless `close_sessions` closes them. Also raises
        `Error`, after the reset, if a fault requested before the reset never fired. In pytest, a
        reset after a failed test closes all sessions and releases the database, so that pgfresh can
        keep the database. Then the client leases a new database with the same name.
        """
        unfired = ""
        if self._failed is None or self._owner != os.getpid():
            unfired = self._reset(close_sessions)
        else:
            # A reset would remove the data of the failed test, so release the database instead.
            self._end()
            self._request["name"] = self.name
            self._lease()
        self._resets += 1
        if self._next is not None:
            (self._test, self._limits), self._next = self._next, None
            self._exceeded.clear()
        skipped, self._skipped = self._skipped, False
        if unfired and not skipped:
            raise Error(unfired)

    def _reset(self, close_sessions: bool) -> str:
        """Resets the database. Returns a message about faults that never fired, or ""."""
        # A test name may contain lone surrogates, which UTF-8 can't encode, so replace them.
        test = self._test and self._test[:1000].encode(errors="replace").decode()
        ended: dict[str, Any] = {} if test is None else {"test": test}
        closing = {"close_sessions": True} if close_sessions else {}
        body = closing | ended | self._limits
        response = self._server.request("POST", f"{_path(self.name)}/reset", body)
        self._faults_requested = False
        if "message" in response:
            self._exceeded.append(response["message"])
        return unfired_message(response)

    def set_replica_lag(self, lag: str | float) -> None:
        """Makes the replica lag behind, for isolation `server`. Returns once the replica lags.

        `none`: a commit returns once the replica shows it. `paused`: the replica doesn't show
        further commits. A time, such as `500ms` or a number of seconds: the replica shows each
        commit after this time.
        """
        body = {"lag": duration_text(lag)}
        self._server.request("POST", f"{_path(self.name)}/replica", body)

    def promote_replica(self) -> None:
        """Stops the server of the database and promotes the replica, which takes its place."""
        self._server.request("POST", f"{_path(self.name)}/promote")

    def fault(
        self,
        what: str | None = None,
        *,
        at: Moment | None = None,
        statement: str | None = None,
        nth: int | None = None,
        times: int | None = None,
        delay: str | float | None = None,
        bandwidth: str | None = None,
        duration: str | float | None = None,
        read_only: str | float | None = None,
    ) -> None:
        """Requests a fault, which lasts until the next reset or the release.

            database.fault("40001", at="commit")
            database.fault("connection lost", at="after commit")
            database.fault(delay="2s", statement="SELECT … FROM orders")

        `what` is the SQLSTATE of an error, `connection lost`, `connection silent` or `failover`.
        Instead of `what`, `delay` delays a message, and `bandwidth` (`10kB` per second) slows the
        connection down from then on. `statement` is the text or the beginning of the statements
        that the fault can hit, and `…` in `statement` stands for any text. The fault hits `times`
        consecutive statements, commits or connections, starting with number `nth`. `duration` and
        `read_only` are for a failover. Times are text with a unit, or a number of seconds.

        When the method returns, the fault applies to all open sessions. If the fault never fires,
        the test fails: in pytest at the end of its call, elsewhere because `release` or `reset`
        raises `Error`.

        Raises `Error` if pgfresh refuses the fault.
        """
        options = {
            "at": at,
            "statement": statement,
            "nth": nth,
            "times": times,
            "delay": delay if delay is None else duration_text(delay),
            "bandwidth": bandwidth,
            "duration": duration if duration is None else duration_text(duration),
            "read_only": read_only if read_only is None else duration_text(read_only),
        }
        self._server.request("POST", f"{_path(self.name)}/faults", body(what, options))
        self._faults_requested = True

    def faults(self) -> list[FaultStatus]:
        """Returns the faults requested since the lease or the last reset, in this order."""
        path = f"{_path(self.name)}/faults"
        answer = self._server.request("GET", path, needs={"faults": list})
        return [status(description) for description in answer["faults"]]

    def _unfired(self) -> str:
        """Returns a message about faults that haven't fired, or "". A second call returns ""."""
        if not self._faults_requested:
            return ""
        answer = self._server.request("GET", f"{_path(self.name)}/faults")
        self._faults_requested = False
        return unfired_message(answer)

    def statements(self) -> Statements:
        """Returns a context manager that counts the statements all clients run within its block.

        pgfresh must record the database: lease it with `record=True`, or mark the test with
        `@pytest.mark.pgfresh(record=True)`. Otherwise the block raises `Error`.
        """
        return Statements(lambda: {**self._measure({}), "resets": self._resets})

    def _measure(self, limits: dict[str, Any]) -> dict[str, Any]:
        """Returns the statements that ran since the lease or the last reset.

        `message` is present if the statements exceed `limits`.
        """
        query = "&".join(f"{name}={quote(str(value))}" for name, value in limits.items())
        path = f"{_path(self.name)}/statements?{query}".rstrip("?")
        return self._server.request("GET", path, needs=_MEASURED)

    def release(self, *, failed: bool = False, test: str | None = None) -> str | None:
        """Releases the database: pgfresh closes its sessions and removes the database.

        `failed` reports that the test failed. If pgfresh keeps the database of the failed test,
        returns the database URL, otherwise None. `test` is the name of the test in profiles. A
        second call does nothing.

        Raises `Error` after the release if a fault never fired, unless the test failed.
        """
        response = self._release(failed, test)
        if not failed and (unfired := unfired_message(response)):
            raise Error(unfired)
        return response.get("url")

    def _release(self, failed: bool, test: str | None) -> dict[str, Any]:
        self._faults_requested = False
        if self._owner != os.getpid():
            return {}
        self._owner = None
        return self._server.request("DELETE", _path(self.name) + _query(failed, test))

    def _end(self) -> None:
        """Releases the database for the first failed test, or for the last test if none failed."""
        failed, self._failed = self._failed, None
        if self._skipped:
            self._release(False, self._test)
        elif failed is None:
            self.release(test=self._test)
        elif kept := self.release(failed=True, test=failed):
            self._kept.append((failed, kept))

    def __repr__(self) -> str:
        return f"<Database {self.name!r} of template {self.template!r}>"

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unfired = "" if kind is not None or self._owner != os.getpid() else self._unfired()
        kept = self.release(failed=kind is not None or unfired != "")
        if kept:
            print(kept_line(kept), file=sys.stderr)
        if unfired:
            raise Error(unfired)


def fresh_database(
    *,
    template: str | None = None,
    name: str | None = None,
    isolation: str | None = None,
    record: bool = False,
) -> Database:
    """Leases a database: a fresh copy of `template`, by default the template in `pgfresh.toml`.

    Outside `pgfresh run`, the first call in a process starts pgfresh. Without `name`, pgfresh
    generates a name. The HTTP API documentation lists the values of `isolation`. With `record`,
    pgfresh records the statements for `Database.statements`.

    Raises `Error` if pgfresh doesn't start or refuses the request.
    """
    return Database(template=template, name=name, isolation=isolation, record=record)


def reset(name: str) -> None:
    """Resets the leased database `name`, and closes its sessions."""
    server().request("POST", f"{_path(name)}/reset", {"close_sessions": True})


def _path(name: str) -> str:
    return f"/v1/databases/{quote(name, safe='')}"


def _query(failed: bool, test: str | None) -> str:
    named = [] if test is None else [f"test={quote(test[:1000], safe='', errors='replace')}"]
    parts = ["failed=true"] * failed + named
    return "?" + "&".join(parts) if parts else ""


def duration_text(time: str | float) -> str:
    """Returns `time` as text with a unit, which pgfresh parses. A number is in seconds.

    Raises `Error` if the number is infinite or not a number.
    """
    if isinstance(time, float) and not math.isfinite(time):
        raise Error(f"the time is not finite: {time}")
    return time if isinstance(time, str) else f"{math.ceil(time * 1000)}ms"


def kept_line(url: str) -> str:
    """Returns the line that reports the kept database of a failed test."""
    return f"pgfresh: kept the database of the failed test: {url}"
