"""The first test in docs/scenarios.md. It fails with SHOP=faulty."""

import psycopg
from pgfresh import Database

from mended import Shop


def test_payment_is_stored_once(shop: Shop, fresh_database: Database) -> None:
    fresh_database.fault("connection lost", at="after commit")
    shop.pay("Ann", 4200)
    with psycopg.connect(fresh_database.url) as connection:
        payments = connection.execute(
            "SELECT cents FROM payments WHERE customer = 'Ann'"
        ).fetchall()
    assert payments == [(4200,)]
