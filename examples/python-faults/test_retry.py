"""Tests that the shop retries a transaction after a fault."""

import psycopg
import pytest
from pgfresh import Database

from mended import Shop


def test_payment_survives_serialization_failures(shop: Shop, fresh_database: Database) -> None:
    fresh_database.fault("40001", at="commit", times=2)
    assert shop.pay("Ann", 4200) == "Ann: thank you"


def test_third_serialization_failure_reaches_customer(shop: Shop, fresh_database: Database) -> None:
    fresh_database.fault("40001", at="commit", times=10)
    with pytest.raises(psycopg.errors.SerializationFailure):
        shop.pay("Ann", 4200)
    assert [fault.fired for fault in fresh_database.faults()] == [3]
