"""Engine, sessions and the transaction rule: one public command, one transaction."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

P = ParamSpec("P")
R = TypeVar("R")

DRIVER = "postgresql+psycopg"
_SCHEMES = frozenset({"postgres", "postgresql", DRIVER})


class ConfigurationError(RuntimeError):
    """Raised if the environment doesn't name a database."""


def database_url(environ: Mapping[str, str] | None = None) -> URL:
    """Return the URL in DATABASE_URL, with the scheme for the psycopg 3 driver."""
    raw = (os.environ if environ is None else environ).get("DATABASE_URL", "").strip()
    if not raw:
        raise ConfigurationError(
            "DATABASE_URL is not set; "
            "expected something like postgresql://user@/shop?host=/path/to/socket/dir"
        )
    scheme, separator, rest = raw.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ConfigurationError("DATABASE_URL is not a PostgreSQL URL")
    return make_url(f"{DRIVER}://{rest}")


def create_shop_engine(url: URL | None = None, **options: Any) -> Engine:
    """Return an engine for `url`, or for the database that the environment names."""
    return create_engine(
        url if url is not None else database_url(),
        connect_args={"client_encoding": "utf8"},
        **options,
    )


def session_factory(engine: Engine) -> sessionmaker[Session]:
    return sessionmaker(engine)


def atomic(
    command: Callable[Concatenate[Session, P], R],
) -> Callable[Concatenate[Session, P], R]:
    """Run a function, whose first parameter is a session, in one transaction.

    The outermost atomic function commits, or rolls back if it raises an exception. Atomic
    functions that it calls join its transaction.
    """

    @wraps(command)
    def run(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> R:
        depth: int = session.info.get("atomic_depth", 0)
        session.info["atomic_depth"] = depth + 1
        try:
            result = command(session, *args, **kwargs)
            if depth == 0:
                session.commit()
            else:
                session.flush()
            return result
        except BaseException:
            if depth == 0:
                session.rollback()
            raise
        finally:
            session.info["atomic_depth"] = depth

    return run


def violates(error: IntegrityError, constraint: str) -> bool:
    """Return whether the error names this constraint."""
    diagnostics = getattr(error.orig, "diag", None)
    return diagnostics is not None and diagnostics.constraint_name == constraint
