"""One migrated database for the session, emptied before every test that uses it."""

from collections.abc import Callable, Iterator
from pathlib import Path

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

ROOT = Path(__file__).resolve().parent.parent

TRUNCATE = "TRUNCATE {} RESTART IDENTITY CASCADE".format(
    ", ".join(sorted(Base.metadata.tables.keys() - SEEDED_TABLES))
)


def migrate(engine: Engine) -> None:
    """Bring the database to the newest revision, unless it is there already."""
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
def engine() -> Iterator[Engine]:
    """The shop's engine, on a database with the current schema."""
    try:
        url = database_url()
    except ConfigurationError as error:
        pytest.exit(f"the tests need a PostgreSQL database: {error}", returncode=4)
    engine = create_shop_engine(url)
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def new_session(engine: Engine) -> Iterator[sessionmaker[Session]]:
    """Makes sessions on the emptied database, for tests that need more than one."""
    with engine.begin() as connection:
        connection.execute(text(TRUNCATE))
    yield session_factory(engine)


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
