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
    """The environment does not say which database to use."""


def database_url(environ: Mapping[str, str] | None = None) -> URL:
    """The URL in DATABASE_URL, with its scheme mapped to the psycopg 3 driver."""
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
    """An engine for `url`, or for the database the environment names."""
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
    """Make a function that takes a session first one transaction.

    The outermost atomic function commits, or rolls back when an exception leaves it;
    those it calls join its transaction.
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
    """Whether the error names this constraint."""
    diagnostics = getattr(error.orig, "diag", None)
    return diagnostics is not None and diagnostics.constraint_name == constraint
