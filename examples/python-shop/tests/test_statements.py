"""Limits how many statements the shop runs. pgfresh counts them, so some tests need it."""

import os

import pytest
from sqlalchemy import insert, select

from shop import reporting
from shop.models import Product

counted = pytest.mark.skipif(
    not os.environ.get("SHOP_FRESH"), reason="pgfresh counts the statements: set SHOP_FRESH=1"
)


@pytest.fixture
def products(session):
    rows = [{"name": f"Product {number}", "slug": f"product-{number}"} for number in range(12)]
    session.execute(insert(Product), rows)
    session.commit()
    return rows


@counted
@pytest.mark.pgfresh(statements=20, n_plus_one=0)
def test_all_names_are_one_query(session, products):
    # The fixture's statements count, too: each row in a batch is a statement.
    assert len(session.scalars(select(Product.name)).all()) == len(products)


@counted
@pytest.mark.pgfresh(record=True)
def test_a_report_is_one_query(session, fresh, products):
    with fresh.statements() as statements:
        reporting.best_sellers(session)
    # The count includes BEGIN.
    assert len(statements) <= 2, statements


def test_names_one_after_the_other(session, products):
    """Slow on purpose: runs a query for each row of another. `pgfresh run --profile` finds it."""
    ids = session.scalars(select(Product.id)).all()
    names = [session.scalar(select(Product.name).where(Product.id == number)) for number in ids]
    assert len(names) == len(products)
