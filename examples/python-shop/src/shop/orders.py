"""Life cycle of an order after checkout."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from .errors import InvalidTransition, NotFound
from .models import Order, OrderEvent, OrderStatus

S = OrderStatus
NEXT: dict[OrderStatus, frozenset[OrderStatus]] = {
    S.PENDING: frozenset({S.PAID, S.CANCELLED}),
    S.PAID: frozenset({S.PARTLY_SHIPPED, S.SHIPPED, S.CANCELLED, S.REFUNDED}),
    S.PARTLY_SHIPPED: frozenset({S.SHIPPED, S.REFUNDED}),
    S.SHIPPED: frozenset({S.DELIVERED, S.REFUNDED}),
    S.DELIVERED: frozenset({S.REFUNDED}),
    S.CANCELLED: frozenset(),
    S.REFUNDED: frozenset(),
}


def lock(session: Session, order_id: int) -> Order:
    order = session.scalar(
        select(Order)
        .where(Order.id == order_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if order is None:
        raise NotFound("order", order_id)
    return order


def by_number(session: Session, number: str) -> Order:
    order = session.scalar(select(Order).where(Order.number == number))
    if order is None:
        raise NotFound("order", number)
    return order


def transition(order: Order, status: OrderStatus) -> None:
    """Change the status, if the transition from the current status is allowed."""
    if status not in NEXT[order.status]:
        raise InvalidTransition(f"{order.status.value} does not lead to {status.value}")
    order.status = status


def history(session: Session, order: Order) -> list[OrderStatus]:
    """Return all states that an order has been in."""
    return list(
        session.scalars(
            select(OrderEvent.new_status)
            .where(OrderEvent.order_id == order.id)
            .order_by(OrderEvent.id)
        )
    )
