"""A testcontainers suite that runs without containers. Only the import differs."""

from collections.abc import Iterator

import psycopg
import pytest
from pgfresh.testcontainers import PostgresContainer


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresContainer]:
    # "postgres:18" would select PostgreSQL 18.
    with PostgresContainer("postgres:latest", driver=None) as postgres:
        yield postgres


@pytest.fixture
def connection(postgres: PostgresContainer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.get_connection_url()) as connection:
        yield connection
        connection.rollback()


def test_trip_takes_the_bike(connection: psycopg.Connection) -> None:
    connection.execute("UPDATE bike SET station = NULL WHERE id = 1")
    left = connection.execute("SELECT count(*) FROM bike WHERE station = 1").fetchone()
    assert left == (1,)


def test_bikes_are_at_their_stations(connection: psycopg.Connection) -> None:
    found = connection.execute("SELECT station, count(*) FROM bike GROUP BY 1 ORDER BY 1")
    assert found.fetchall() == [(1, 2), (2, 1)]
