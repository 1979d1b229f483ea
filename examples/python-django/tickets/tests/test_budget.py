"""A test with a budget, which only `pytest` runs. It has a separate database besides Django's."""

import psycopg
import pytest


@pytest.mark.pgfresh(statements=2, n_plus_one=0)
def test_the_migrations_made_three_discounts(fresh_url):
    with psycopg.connect(fresh_url, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM tickets_discount").fetchone() == (3,)
