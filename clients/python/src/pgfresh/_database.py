"""A database of one's own, from its lease to its release."""

from __future__ import annotations

import math
import sys
from types import TracebackType
from typing import Any
from urllib.parse import quote

from ._server import server
from ._statements import Statements


class Database:
    """A fresh copy of a template, ours until it is released.

    As a context manager it releases itself, as a failed test's if an exception ends the block.
    """

    name: str
    """Its name, unique on its server."""
    url: str
    """`postgresql://…`, for drivers and everything else that understands libpq's URLs."""
    jdbc_url: str
    """The same for JDBC."""
    socket_url: str
    """`postgresql://…` over a unix socket, without a password."""
    template: str
    """What it is a copy of."""
    recorded: bool
    """Whether its statements are recorded: because `record` asks for it, or because `pgfresh.toml`
    has a `[budget]`."""

    def __init__(
        self,
        *,
        template: str | None = None,
        name: str | None = None,
        isolation: str | None = None,
        record: bool = False,
    ) -> None:
        request: dict[str, Any] = {
            "template": template,
            "name": name,
            "isolation": isolation,
            "holder": server().holder,
            "record": record or None,
        }
        self._request = {key: value for key, value in request.items() if value is not None}
        self._test: str | None = None
        self._failed: str | None = None
        """The first test that used it and failed since its lease or last reset."""
        self._kept: list[tuple[str, str]] = []
        """Tests that failed, with the URL under which their database was kept."""
        self._limits: dict[str, Any] = {}
        self._exceeded: list[str] = []
        self._resets = 0
        self._lease()

    def _lease(self) -> None:
        told = server().ask("POST", "/v1/databases", self._request)
        self.name = told["name"]
        self.url = told["url"]
        self.jdbc_url = told["jdbc_url"]
        self.socket_url = told["socket_url"]
        self.template = told["template"]
        self.recorded = told.get("recorded", False)

    def url_for(self, driver: str) -> str:
        """The URL as SQLAlchemy wants it: `url_for("psycopg")` is `postgresql+psycopg://…`."""
        return self.url.replace("postgresql://", f"postgresql+{driver}://", 1)

    def reset(self, *, close_sessions: bool = False) -> None:
        """Makes it equal to its template again. Open sessions are an error, or are closed.

        In pytest, after a failed test, it is released as that test's, which closes its sessions,
        and a new database takes its name.
        """
        if self._failed is None:
            self._reset(close_sessions)
        else:
            # A reset would remove what the failed test left.
            self._end()
            self._request["name"] = self.name
            self._lease()
        self._resets += 1

    def _reset(self, close_sessions: bool) -> None:
        # A name need not be text that UTF-8 can say.
        test = self._test and self._test[:1000].encode(errors="replace").decode()
        ended = {} if test is None else {"test": test}
        told = reset(self.name, close_sessions=close_sessions, **ended, **self._limits)
        if "message" in told:
            self._exceeded.append(told["message"])

    def statements(self) -> Statements:
        """The statements that its clients run within a block. It must be recorded: lease it with
        `record=True`, or mark the test with `@pytest.mark.pgfresh(record=True)`.
        """
        return Statements(lambda: {**self._measure({}), "resets": self._resets})

    def _measure(self, limits: dict[str, Any]) -> dict[str, Any]:
        """What its clients have run since it was leased or reset, and which limits that exceeds."""
        query = "&".join(f"{name}={quote(str(value))}" for name, value in limits.items())
        return server().ask("GET", f"{_path(self.name)}/statements?{query}".rstrip("?"))

    def release(self, *, failed: bool = False, test: str | None = None) -> str | None:
        """Gives it back: its sessions are closed, it is no more. With `failed`, for the database of
        a failed test, the URL under which it was kept, if it was. `test` is the test's name, under
        which profiles list it.
        """
        told = server().ask("DELETE", _path(self.name) + _query(failed, test))
        return told.get("url")

    def _end(self) -> None:
        """Releases it as that of the test that failed, or else as that of the last one."""
        failed, self._failed = self._failed, None
        if failed is None:
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
        kept = self.release(failed=kind is not None)
        if kept:
            print(kept_line(kept), file=sys.stderr)


def fresh_database(
    *,
    template: str | None = None,
    name: str | None = None,
    isolation: str | None = None,
    record: bool = False,
) -> Database:
    """Leases a database: a fresh copy of `template`, or of the default one of pgfresh.toml.

    The first call of a process starts pgfresh, unless `pgfresh run` has done so. `name` is made up
    if there is none. `isolation` is as in pgfresh's documentation of its HTTP API. With `record`
    its statements are recorded, for `Database.statements`.

    Raises `Error` if it is refused.
    """
    return Database(template=template, name=name, isolation=isolation, record=record)


def reset(name: str, *, close_sessions: bool, **test: Any) -> dict[str, Any]:
    """Makes the leased database of that name equal to its template again. `test` is what is said of
    the test that is over: its name as `test`, and limits.
    """
    wish = ({"close_sessions": True} if close_sessions else {}) | test
    return server().ask("POST", f"{_path(name)}/reset", wish)


def _path(name: str) -> str:
    return f"/v1/databases/{quote(name, safe='')}"


def _query(failed: bool, test: str | None) -> str:
    named = [] if test is None else [f"test={quote(test[:1000], safe='', errors='replace')}"]
    parts = ["failed=true"] * failed + named
    return "?" + "&".join(parts) if parts else ""


def span(time: str | float) -> str:
    """A time as pgfresh reads it; a number is one of seconds."""
    return time if isinstance(time, str) else f"{math.ceil(time * 1000)}ms"


def kept_line(url: str) -> str:
    """How the user is told where the database of a failed test is."""
    return f"pgfresh: kept the database of the failed test: {url}"
