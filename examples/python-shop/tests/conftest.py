"""Provides a database, which is emptied before each test that uses it.

By default, the fixtures truncate all tables that grow. With SHOP_FRESH=1, each process leases a
database from pgfresh, and pgfresh resets it, so that tests can also run in parallel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from factories import Factory, FakeGateway, diagnosis
from shop.db import ConfigurationError, create_shop_engine, database_url, session_factory
from shop.models import SEEDED_TABLES, Base

if TYPE_CHECKING:
    from pgfresh import Database

ROOT = Path(__file__).resolve().parent.parent

TRUNCATE = "TRUNCATE {} RESTART IDENTITY CASCADE".format(
    ", ".join(sorted(Base.metadata.tables.keys() - SEEDED_TABLES))
)


def migrate(engine: Engine) -> None:
    """Migrate the database to the newest revision, if necessary."""
    config = Config(str(ROOT / "alembic.ini"))
    heads = set(ScriptDirectory.from_config(config).get_heads())
    with engine.connect() as connection:
        if set(MigrationContext.configure(connection).get_current_heads()) == heads:
            return
        connection.rollback()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()


@pytest.fixture(scope="session")
def fresh(request: pytest.FixtureRequest) -> Database | None:
    """pgfresh's database for this process, or None if the tests don't use pgfresh."""
    if not os.environ.get("SHOP_FRESH"):
        return None
    return request.getfixturevalue("fresh_session_database")


@pytest.fixture(scope="session")
def engine(fresh: Database | None) -> Iterator[Engine]:
    """The shop's engine, on a database with the current schema."""
    try:
        url = database_url({"DATABASE_URL": fresh.url} if fresh else None)
    except ConfigurationError as error:
        pytest.exit(f"the tests need a PostgreSQL database: {error}", returncode=4)
    engine = create_shop_engine(url)
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def new_session(engine: Engine, fresh: Database | None) -> sessionmaker[Session]:
    """Makes sessions on the emptied database, for tests that need more than one."""
    if fresh:
        engine.dispose()
        fresh.reset()
    else:
        with engine.begin() as connection:
            connection.execute(text(TRUNCATE))
    return session_factory(engine)


@pytest.fixture
def session(new_session: sessionmaker[Session]) -> Iterator[Session]:
    with new_session() as session:
        yield session


@pytest.fixture
def make(session: Session) -> Factory:
    return Factory(session)


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def rejects(session: Session) -> Callable[..., None]:
    """Checks that the database refuses a statement, naming the constraint it breaks."""

    def check(constraint: str, statement: str, **parameters: object) -> None:
        with pytest.raises(IntegrityError) as refusal:
            session.execute(text(statement), parameters)
            session.commit()
        session.rollback()
        assert diagnosis(refusal.value).constraint_name == constraint

    return check
