import psycopg
import pytest


@pytest.fixture
def connection(fresh_url):
    with psycopg.connect(fresh_url) as connection:
        yield connection
