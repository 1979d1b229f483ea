"""A database of one's own, from its lease to its release."""

from __future__ import annotations

import sys
from types import TracebackType
from urllib.parse import quote

from ._server import server


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
    """`postgresql://…` straight to the server's unix socket, past the gateway."""
    template: str
    """What it is a copy of."""

    def __init__(
        self,
        *,
        template: str | None = None,
        name: str | None = None,
        isolation: str | None = None,
    ) -> None:
        wish = {
            "template": template,
            "name": name,
            "isolation": isolation,
            "holder": server().holder,
        }
        told = server().ask(
            "POST",
            "/v1/databases",
            {key: value for key, value in wish.items() if value is not None},
        )
        self.name = told["name"]
        self.url = told["url"]
        self.jdbc_url = told["jdbc_url"]
        self.socket_url = told["socket_url"]
        self.template = told["template"]

    def url_for(self, driver: str) -> str:
        """The URL as SQLAlchemy wants it: `url_for("psycopg")` is `postgresql+psycopg://…`."""
        return self.url.replace("postgresql://", f"postgresql+{driver}://", 1)

    def reset(self, *, close_sessions: bool = False) -> None:
        """Makes it equal to its template again. Open sessions are an error, or are closed."""
        reset(self.name, close_sessions=close_sessions)

    def release(self, *, failed: bool = False, test: str = "") -> str | None:
        """Gives it back: its sessions are closed, it is no more. With `failed`, for the database of
        a failed test, the URL under which it was kept, if it was. `test` is the test's name, under
        which profiles list it.
        """
        told = server().ask("DELETE", _path(self.name) + _query(failed, test))
        return told.get("url")

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
) -> Database:
    """Leases a database: a fresh copy of `template`, or of the default one of pgfresh.toml.

    The first call of a process starts pgfresh, unless `pgfresh run` has done so. `name` is made up
    if there is none. `isolation` is as in pgfresh's documentation of its HTTP API.

    Raises `Error` if it is refused.
    """
    return Database(template=template, name=name, isolation=isolation)


def reset(name: str, *, close_sessions: bool) -> None:
    """Makes the leased database of that name equal to its template again."""
    wish = {"close_sessions": True} if close_sessions else {}
    server().ask("POST", f"{_path(name)}/reset", wish)


def _path(name: str) -> str:
    return f"/v1/databases/{quote(name, safe='')}"


def _query(failed: bool, test: str) -> str:
    name = quote(test[:1000], safe="", errors="replace")
    parts = ["failed=true"] * failed + [f"test={name}"] * bool(name)
    return "?" + "&".join(parts) if parts else ""


def kept_line(url: str) -> str:
    """How the user is told where the database of a failed test is."""
    return f"pgfresh: kept the database of the failed test: {url}"
