"""Retries transactions."""

from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg_pool import ConnectionPool

Result = TypeVar("Result")


def retry(pool: ConnectionPool, work: Callable[[psycopg.Connection], Result]) -> Result:
    """Run work in a transaction, at most three times if the transaction or its connection fails."""
    attempt = 1
    while True:
        try:
            with pool.connection() as connection:
                return work(connection)
        except psycopg.OperationalError:
            if attempt == 3:
                raise
        attempt += 1
