from datetime import datetime, timezone

import pytest

from shop import cancellation, invoicing
from shop.errors import InvalidTransition
from shop.models import InvoiceCounter

IN_2023 = datetime(2023, 12, 31, 23, 59, tzinfo=timezone.utc)
IN_2024 = datetime(2024, 1, 1, tzinfo=timezone.utc)


def test_numbers_start_again_every_year(session, make):
    variant = make.variant()
    orders = [make.paid_order((variant, 1)) for _ in range(3)]
    moments = (IN_2023, IN_2023, IN_2024)
    invoices = [
        invoicing.issue(session, order, now=now) for order, now in zip(orders, moments, strict=True)
    ]
    labels = [invoicing.label(invoice) for invoice in invoices]
    assert labels == ["2023-000001", "2023-000002", "2024-000001"]
    assert [invoice.total for invoice in invoices] == [order.total for order in orders]


def test_an_order_has_one_invoice(session, make):
    order = make.paid_order()
    first = invoicing.issue(session, order, now=IN_2023)
    assert invoicing.issue(session, order, now=IN_2024).id == first.id
    assert session.get(InvoiceCounter, 2024) is None


def test_rollback_leaves_no_gap(session, make):
    variant = make.variant()
    lost, kept = make.paid_order((variant, 1)), make.paid_order((variant, 1))
    assert invoicing._next_number(session, 2024) == 1
    session.rollback()
    assert invoicing.issue(session, kept, now=IN_2024).number == 1
    assert invoicing.issue(session, lost, now=IN_2024).number == 2


def test_unpaid_and_cancelled_orders_have_none(session, make):
    order = make.order()
    with pytest.raises(InvalidTransition, match="pending"):
        invoicing.issue(session, order)
    cancellation.cancel(session, order.id, "?")
    with pytest.raises(InvalidTransition, match="cancelled"):
        invoicing.issue(session, order)
