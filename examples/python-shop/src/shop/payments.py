"""Charge payments exactly once, and refund at most the charged amount."""

from typing import Protocol

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from . import orders, outbox
from .clock import utcnow
from .db import atomic
from .errors import (
    IdempotencyConflict,
    InvalidTransition,
    NotFound,
    Overpayment,
    PaymentDeclined,
    RefundTooLarge,
)
from .models import Order, OrderStatus, Payment, PaymentStatus, Refund


class Declined(Exception):
    """Raised if the gateway doesn't accept the payment."""


class Gateway(Protocol):
    name: str

    def charge(self, amount: int, currency: str, key: str) -> str:
        """Charge the amount and return a reference. The same key never charges twice."""
        ...


def capture(session: Session, order: Order, amount: int, key: str, gateway: Gateway) -> Payment:
    """Charge `amount` for an order. If the key was used before, return the earlier result.

    No transaction is open during the request to the gateway. The attempt is stored before the
    request, so after a crash, repeating the call completes the payment.
    """
    payment = _begin(session, order.id, amount, key, gateway.name)
    if payment.status is PaymentStatus.CAPTURED:
        return payment
    if payment.status is PaymentStatus.FAILED:
        raise PaymentDeclined(payment.failure)
    currency = order.currency_code
    session.commit()
    try:
        reference = gateway.charge(amount, currency, key)
    except Declined as refusal:
        _fail(session, payment.id, str(refusal))
        raise PaymentDeclined(str(refusal)) from refusal
    return _finish(session, payment.id, reference)


@atomic
def _begin(session: Session, order_id: int, amount: int, key: str, provider: str) -> Payment:
    order = orders.lock(session, order_id)
    known = session.scalar(select(Payment).where(Payment.idempotency_key == key))
    if known is not None:
        if (known.order_id, known.amount) != (order_id, amount):
            raise IdempotencyConflict(key)
        return known
    if order.status is not OrderStatus.PENDING:
        raise InvalidTransition(f"order {order.number} is {order.status.value}")
    engaged = session.scalar(
        select(func.coalesce(func.sum(Payment.amount), 0)).where(
            Payment.order_id == order_id, Payment.status != PaymentStatus.FAILED
        )
    )
    if (engaged or 0) + amount > order.total:
        raise Overpayment(f"{amount} on top of {engaged}, the total is {order.total}")
    inserted = session.scalar(
        insert(Payment)
        .values(order_id=order_id, amount=amount, idempotency_key=key, provider=provider)
        .on_conflict_do_nothing(index_elements=["idempotency_key"])
        .returning(Payment)
    )
    if inserted is None:  # a concurrent transaction has used the key for a different order
        raise IdempotencyConflict(key)
    return inserted


@atomic
def _fail(session: Session, payment_id: int, reason: str) -> None:
    payment = lock(session, payment_id)
    payment.status = PaymentStatus.FAILED
    payment.failure = reason


@atomic
def _finish(session: Session, payment_id: int, reference: str) -> Payment:
    order_id = session.scalars(select(Payment.order_id).where(Payment.id == payment_id)).one()
    order = orders.lock(session, order_id)
    payment = lock(session, payment_id)
    if payment.status is PaymentStatus.PENDING:
        payment.status = PaymentStatus.CAPTURED
        payment.provider_reference = reference
        payment.captured_at = utcnow()
        session.flush()
        if captured(session, order) == order.total:
            orders.transition(order, OrderStatus.PAID)
            outbox.emit(session, "order.paid", {"number": order.number})
    return payment


def lock(session: Session, payment_id: int) -> Payment:
    payment = session.scalar(
        select(Payment)
        .where(Payment.id == payment_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if payment is None:
        raise NotFound("payment", payment_id)
    return payment


def captured(session: Session, order: Order) -> int:
    return int(
        session.scalar(
            select(func.coalesce(func.sum(Payment.amount), 0)).where(
                Payment.order_id == order.id, Payment.status == PaymentStatus.CAPTURED
            )
        )
        or 0
    )


def refundable(session: Session, payment: Payment) -> int:
    """Return the amount of a payment minus its refunds."""
    if payment.status is not PaymentStatus.CAPTURED:
        return 0
    refunded = session.scalar(
        select(func.coalesce(func.sum(Refund.amount), 0)).where(Refund.payment_id == payment.id)
    )
    return payment.amount - int(refunded or 0)


@atomic
def refund(session: Session, payment_id: int, amount: int, reason: str) -> Refund:
    """Refund a part of a payment."""
    payment = lock(session, payment_id)
    left = refundable(session, payment)
    if not 0 < amount <= left:
        raise RefundTooLarge(f"{amount} of {left}")
    entry = Refund(payment_id=payment.id, amount=amount, reason=reason)
    session.add(entry)
    return entry


@atomic
def refund_amount(session: Session, order: Order, amount: int, reason: str) -> list[Refund]:
    """Refund an amount, starting with the latest payment for the order."""
    entries = []
    for payment in sorted(order.payments, key=lambda payment: payment.id, reverse=True):
        part = min(amount, refundable(session, payment))
        if part > 0:
            entries.append(refund(session, payment.id, part, reason))
            amount -= part
    if amount:
        raise RefundTooLarge(f"{amount} more than was paid for order {order.number}")
    return entries


@atomic
def refund_all(session: Session, order: Order, reason: str) -> list[Refund]:
    left = sum(refundable(session, payment) for payment in order.payments)
    return refund_amount(session, order, left, reason)
