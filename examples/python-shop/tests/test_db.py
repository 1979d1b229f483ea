"""The URL in the environment, and the transaction rule."""

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session, sessionmaker

from shop.db import ConfigurationError, atomic, create_shop_engine, database_url
from shop.models import Warehouse


def url(raw: str):
    return database_url({"DATABASE_URL": raw})


def connect_arguments(parsed):
    """Return the arguments that the driver is called with."""
    positional, named = create_shop_engine(parsed).dialect.create_connect_args(parsed)
    assert positional == []
    return {key: value for key, value in named.items() if key != "context"}


def test_socket_url():
    parsed = url("postgresql://shop@/main?host=/run/some/dir")
    assert parsed.drivername == "postgresql+psycopg"
    assert connect_arguments(parsed) == {
        "user": "shop",
        "dbname": "main",
        "host": "/run/some/dir",
    }


def test_percent_encoded_socket_url():
    arguments = connect_arguments(url("postgresql:///main?host=%2Frun%2Fsome%20dir&port=5433"))
    assert arguments == {"dbname": "main", "host": "/run/some dir", "port": "5433"}


def test_tcp_url_with_the_short_scheme():
    parsed = url("postgres://shop:s%40cret@127.0.0.1:6543/main")
    assert parsed.drivername == "postgresql+psycopg"
    assert connect_arguments(parsed) == {
        "user": "shop",
        "password": "s@cret",
        "host": "127.0.0.1",
        "port": 6543,
        "dbname": "main",
    }


def test_url_that_names_the_driver_already():
    assert url("postgresql+psycopg://localhost/main").drivername == "postgresql+psycopg"


@pytest.mark.parametrize("environ", [{}, {"DATABASE_URL": "  "}])
def test_missing_url_is_explained(environ):
    with pytest.raises(ConfigurationError, match="DATABASE_URL is not set"):
        database_url(environ)


@pytest.mark.parametrize("raw", ["mysql://root@localhost/main", "dbname=main"])
def test_other_urls_are_refused_without_repeating_them(raw):
    with pytest.raises(ConfigurationError) as refusal:
        url(raw)
    assert raw not in str(refusal.value)


@atomic
def _add(session: Session, code: str) -> None:
    session.add(Warehouse(code=code, name=code, country_code="DE"))


@atomic
def _add_two(session: Session, first: str, second: str, *, fail: bool) -> None:
    _add(session, first)
    _add(session, second)
    if fail:
        raise RuntimeError("too late")


def _count(new_session: sessionmaker[Session]) -> int:
    with new_session() as other:
        return other.scalars(select(func.count()).select_from(Warehouse)).one()


def test_atomic_commits(session, new_session):
    _add(session, "A")
    assert _count(new_session) == 1


def test_nested_commands_share_one_transaction(session, new_session):
    with pytest.raises(RuntimeError):
        _add_two(session, "A", "B", fail=True)
    assert _count(new_session) == 0
    _add_two(session, "A", "B", fail=False)
    assert _count(new_session) == 2


def test_session_is_usable_after_a_database_error(session, new_session):
    _add(session, "A")
    with pytest.raises(Exception, match="warehouses_code_key"):
        _add(session, "A")
    _add(session, "B")
    assert _count(new_session) == 2


def test_every_test_starts_with_first_identities(session):
    _add(session, "A")
    assert session.scalars(select(Warehouse.id)).one() == 1
    assert session.scalars(text("SELECT count(*) FROM stock")).one() == 0
