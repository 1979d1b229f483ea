"""Five ways to give each test a clean database, on the schema of examples/python-shop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pgfresh
import psycopg
from alembic import command
from alembic.config import Config
from shop.db import create_shop_engine, database_url
from shop.models import SEEDED_TABLES, Base

SHOP = Path(__file__).resolve().parent.parent / "examples" / "python-shop"

TABLES = sorted(Base.metadata.tables.keys() - SEEDED_TABLES)

FEW = 2
"""Number of tests in a run if all would take minutes."""


class Cleanup(ABC):
    """Way to give each test a clean database. `server` is the URL of a stock server, with a place for a database's name."""

    label: str
    tests: int | None = None
    """Number of tests in a run; None stands for all."""

    def __init__(self, server: str, worker: int) -> None:
        self.server = server
        self.name = f"shop_{worker}"

    @contextmanager
    @abstractmethod
    def connection(self) -> Iterator[psycopg.Connection]:
        """A connection to a clean database, for one test."""
        yield from ()


class Emptied(Cleanup):
    """A database that is migrated once. Each test gets its tables empty, and all tests share a connection."""

    statement: str

    def __init__(self, server: str, worker: int) -> None:
        super().__init__(server, worker)
        self._connection = psycopg.connect(server.format(self.name), autocommit=True)

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        self._connection.execute(self.statement)
        yield self._connection


class Truncated(Emptied):
    label = "TRUNCATE"
    statement = f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE"


class Deleted(Emptied):
    label = "DELETE"
    # A replica checks no foreign keys and fires no triggers.
    statement = "; ".join(
        [
            "BEGIN",
            "SET LOCAL session_replication_role = replica",
            *(f"DELETE FROM {table}" for table in TABLES),
            "COMMIT",
        ]
    )


class Copied(Cleanup):
    """A database for each test: a copy of a template that is migrated once."""

    label = "CREATE DATABASE"
    template = "shop_template"

    def __init__(self, server: str, worker: int) -> None:
        super().__init__(server, worker)
        self.name = f"copy_{worker}"
        self._admin = psycopg.connect(server.format("postgres"), autocommit=True)

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        self._admin.execute(f"DROP DATABASE IF EXISTS {self.name}")
        self._admin.execute(f"CREATE DATABASE {self.name} TEMPLATE {self.template}")
        with psycopg.connect(self.server.format(self.name), autocommit=True) as connection:
            yield connection


class Migrated(Copied):
    """A database for each test, which the test migrates."""

    label = "migrate each time"
    template = "template1"
    tests = FEW

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        with super().connection() as connection:
            migrate(self.server.format(self.name))
            yield connection


class Fresh(Cleanup):
    """A database of pgfresh, which each test gets as the template is."""

    label = "pgfresh"

    def __init__(self, server: str, worker: int) -> None:
        super().__init__(server, worker)
        self._lease = pgfresh.fresh_database()
        self._database = self._lease.__enter__()

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        self._database.reset()
        with psycopg.connect(self._database.url, autocommit=True) as connection:
            yield connection


CLEANUPS: list[type[Cleanup]] = [Truncated, Deleted, Copied, Migrated, Fresh]


def migrate(url: str) -> None:
    """Migrates a database with the shop's migrations."""
    config = Config(SHOP / "alembic.ini")
    engine = create_shop_engine(database_url({"DATABASE_URL": url}))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()
