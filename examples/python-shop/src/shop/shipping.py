"""Calculate shipping costs, and ship orders."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from . import orders, outbox, settings, stock
from .clock import utcnow
from .db import atomic
from .errors import InvalidTransition, NoShippingRate, NothingToShip
from .models import (
    Order,
    OrderLine,
    OrderStatus,
    Reservation,
    Shipment,
    ShipmentLine,
    ShippingRate,
)


def cost(session: Session, *, country: str, currency: str, weight_grams: int, goods: int) -> int:
    """Return the cheapest rate for the weight. Shipping is free above a certain order value."""
    amount = session.scalar(
        select(func.min(ShippingRate.amount)).where(
            ShippingRate.country_code == country,
            ShippingRate.currency_code == currency,
            ShippingRate.max_weight_grams >= weight_grams,
        )
    )
    if amount is None:
        raise NoShippingRate(f"{weight_grams} g to {country} in {currency}")
    free_from = settings.get(session, "shipping.free_from")
    return 0 if free_from is not None and goods >= free_from else amount


def to_ship(session: Session, order: Order) -> dict[int, dict[int, int]]:
    """Return the pieces still to be shipped, by warehouse and then by order line."""
    plan: dict[int, dict[int, int]] = {}
    for reservation in session.scalars(
        select(Reservation)
        .join(OrderLine, OrderLine.id == Reservation.order_line_id)
        .where(OrderLine.order_id == order.id, Reservation.shipped < Reservation.quantity)
        .order_by(Reservation.warehouse_id, OrderLine.position)
    ):
        lines = plan.setdefault(reservation.warehouse_id, {})
        lines[reservation.order_line_id] = reservation.outstanding
    return plan


@atomic
def ship(
    session: Session,
    order_id: int,
    warehouse_id: int,
    carrier: str,
    *,
    tracking_number: str | None = None,
    quantities: Mapping[int, int] | None = None,
    now: datetime | None = None,
) -> Shipment:
    """Ship the pieces that a warehouse has reserved for an order, or some of them."""
    order = orders.lock(session, order_id)
    if order.status not in (OrderStatus.PAID, OrderStatus.PARTLY_SHIPPED):
        raise InvalidTransition(f"order {order.number} is {order.status.value}")
    outstanding = to_ship(session, order).get(warehouse_id, {})
    wanted = outstanding if quantities is None else dict(quantities)
    if not wanted or any(
        not 0 < quantity <= outstanding.get(line_id, 0) for line_id, quantity in wanted.items()
    ):
        raise NothingToShip(f"order {order.number}, warehouse {warehouse_id}: {dict(wanted)}")

    shipment = Shipment(
        order_id=order.id,
        warehouse_id=warehouse_id,
        carrier_code=carrier,
        tracking_number=tracking_number,
        shipped_at=now or utcnow(),
    )
    session.add(shipment)
    session.flush()
    held = session.execute(
        select(Reservation, OrderLine.variant_id)
        .join(OrderLine, OrderLine.id == Reservation.order_line_id)
        .where(Reservation.order_line_id.in_(wanted), Reservation.warehouse_id == warehouse_id)
        .order_by(OrderLine.variant_id)
    ).all()
    for reservation, variant_id in held:
        quantity = wanted[reservation.order_line_id]
        stock.dispatch(session, warehouse_id, variant_id, quantity, order.number)
        reservation.shipped += quantity
        session.add(
            ShipmentLine(
                shipment_id=shipment.id,
                order_line_id=reservation.order_line_id,
                quantity=quantity,
            )
        )
    session.flush()
    rest = to_ship(session, order)
    status = OrderStatus.PARTLY_SHIPPED if rest else OrderStatus.SHIPPED
    if order.status is not status:
        orders.transition(order, status)
    outbox.emit(session, "order.shipped", {"number": order.number, "complete": not rest})
    return shipment


@atomic
def deliver(session: Session, shipment: Shipment, *, now: datetime | None = None) -> None:
    """Record the arrival. The order is delivered once all of it has arrived."""
    order = orders.lock(session, shipment.order_id)
    if shipment.delivered_at is not None:
        return
    shipment.delivered_at = now or utcnow()
    session.flush()
    on_the_way = session.scalar(
        select(func.count())
        .select_from(Shipment)
        .where(Shipment.order_id == order.id, Shipment.delivered_at.is_(None))
    )
    if order.status is OrderStatus.SHIPPED and not on_the_way:
        orders.transition(order, OrderStatus.DELIVERED)
