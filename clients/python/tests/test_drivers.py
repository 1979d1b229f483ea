"""Tests Python drivers with databases on a real server."""

from __future__ import annotations

import asyncio

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from pgfresh import Database, Error, fresh_database


def has_table(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT to_regclass('t') IS NOT NULL").fetchone()
        assert row is not None
        return bool(row[0])


def test_reset_removes_tables_with_psycopg(fresh_database: Database) -> None:
    with psycopg.connect(fresh_database.url) as connection:
        connection.execute("CREATE TABLE t ()")
    assert has_table(fresh_database.socket_url)
    fresh_database.reset()
    assert not has_table(fresh_database.url)


def test_reset_rejects_or_closes_open_sessions(fresh_database: Database) -> None:
    with psycopg.connect(fresh_database.url) as connection:
        with pytest.raises(Error) as refusal:
            fresh_database.reset()
        assert refusal.value.code == "55006"
        connection.execute("SELECT 1")
        connection.rollback()
        fresh_database.reset(close_sessions=True)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_asyncpg_connects(fresh_url: str) -> None:
    async def name() -> object:
        connection = await asyncpg.connect(fresh_url)
        try:
            return await connection.fetchval("SELECT current_database()")
        finally:
            await connection.close()

    assert asyncio.run(name()) == fresh_url.rpartition("/")[2]


def test_sqlalchemy_connects(fresh_database: Database) -> None:
    engine = sqlalchemy.create_engine(fresh_database.url_for("psycopg"))
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1
    engine.dispose()


def test_sqlalchemy_connects_with_asyncpg(fresh_database: Database) -> None:
    async def one() -> object:
        engine = create_async_engine(fresh_database.url_for("asyncpg"))
        async with engine.connect() as connection:
            answer = await connection.scalar(sqlalchemy.text("SELECT 1"))
        await engine.dispose()
        return answer

    assert asyncio.run(one()) == 1


def test_name_accepts_any_characters() -> None:
    with fresh_database(name='a b/ü?"%') as database:
        assert database.name == 'a b/ü?"%'
        with psycopg.connect(database.url) as connection:
            assert connection.info.dbname == database.name
        database.reset()


def test_release_removes_database() -> None:
    with fresh_database(name="gone") as database, psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE t ()")
        connection.commit()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(Error, match='"gone" is not leased'):
        database.reset()
    with fresh_database(name="gone") as another:
        assert not has_table(another.url)
