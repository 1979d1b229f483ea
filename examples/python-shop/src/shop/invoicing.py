"""Invoices, numbered without gaps."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from . import orders
from .clock import utcnow
from .db import atomic
from .errors import InvalidTransition
from .models import Invoice, InvoiceCounter, Order, OrderStatus


def _next_number(session: Session, year: int) -> int:
    """Return the next number. Unlike a sequence, a rollback also resets the counter."""
    counter = insert(InvoiceCounter).values(year=year, last=1)
    return session.scalars(
        counter.on_conflict_do_update(
            index_elements=["year"], set_={"last": InvoiceCounter.last + 1}
        ).returning(InvoiceCounter.last)
    ).one()


@atomic
def issue(session: Session, order: Order, *, now: datetime | None = None) -> Invoice:
    """Return the invoice of a paid order. The first call creates it."""
    orders.lock(session, order.id)
    known = session.scalar(select(Invoice).where(Invoice.order_id == order.id))
    if known is not None:
        return known
    if order.status in (OrderStatus.PENDING, OrderStatus.CANCELLED):
        raise InvalidTransition(f"order {order.number} is {order.status.value}")
    now = now or utcnow()
    invoice = Invoice(
        order_id=order.id,
        year=now.year,
        number=_next_number(session, now.year),
        total=order.total,
        issued_at=now,
    )
    session.add(invoice)
    return invoice


def label(invoice: Invoice) -> str:
    return f"{invoice.year}-{invoice.number:06d}"
