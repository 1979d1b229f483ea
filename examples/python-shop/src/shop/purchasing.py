"""Order from suppliers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from . import stock
from .clock import utcnow
from .db import atomic
from .errors import InvalidQuantity, NotFound
from .models import (
    PurchaseOrder,
    PurchaseOrderLine,
    PurchaseStatus,
    Stock,
    Supplier,
    SupplierOffer,
    Variant,
)


@dataclass(frozen=True)
class Suggestion:
    sku: str
    supplier: str
    cost: int
    quantity: int


@atomic
def offer(
    session: Session,
    supplier: Supplier,
    variant: Variant,
    cost: int,
    *,
    currency: str = "EUR",
    min_quantity: int = 1,
) -> SupplierOffer:
    entry = SupplierOffer(
        supplier_id=supplier.id,
        variant_id=variant.id,
        cost=cost,
        currency_code=currency,
        min_quantity=min_quantity,
    )
    session.add(entry)
    return entry


def suggestions(session: Session, target: int) -> list[Suggestion]:
    """Return what to order from each supplier, so that `target` pieces of everything are free.

    Open purchase orders count as free pieces. The cheapest offer wins; on a tie, the faster
    supplier.
    """
    free = (
        select(func.coalesce(func.sum(Stock.on_hand - Stock.reserved), 0))
        .where(Stock.variant_id == Variant.id)
        .scalar_subquery()
    )
    coming = (
        select(func.coalesce(func.sum(PurchaseOrderLine.quantity - PurchaseOrderLine.received), 0))
        .join(PurchaseOrder, PurchaseOrder.id == PurchaseOrderLine.purchase_order_id)
        .where(
            PurchaseOrderLine.variant_id == Variant.id,
            PurchaseOrder.status == PurchaseStatus.OPEN,
        )
        .scalar_subquery()
    )
    missing = target - free - coming
    rows = session.execute(
        select(
            Variant.sku,
            Supplier.name,
            SupplierOffer.cost,
            func.greatest(missing, SupplierOffer.min_quantity).label("quantity"),
        )
        .distinct(Variant.sku)
        .join(SupplierOffer, SupplierOffer.variant_id == Variant.id)
        .join(Supplier, Supplier.id == SupplierOffer.supplier_id)
        .where(Variant.active, missing > 0)
        .order_by(Variant.sku, SupplierOffer.cost, Supplier.lead_time_days, Supplier.id)
    )
    return [Suggestion(sku, name, cost, int(quantity)) for sku, name, cost, quantity in rows]


@atomic
def order(
    session: Session,
    supplier: Supplier,
    warehouse_id: int,
    quantities: Mapping[int, int],
    *,
    today: date | None = None,
) -> PurchaseOrder:
    """Order variants from a supplier at the prices it has offered."""
    entry = PurchaseOrder(
        supplier_id=supplier.id,
        warehouse_id=warehouse_id,
        expected_on=(today or utcnow().date()) + timedelta(days=supplier.lead_time_days),
    )
    session.add(entry)
    session.flush()
    for variant_id, quantity in sorted(quantities.items()):
        known = session.get(SupplierOffer, (supplier.id, variant_id))
        if known is None:
            raise NotFound(f"offer of {supplier.name} for variant", variant_id)
        if quantity < known.min_quantity:
            raise InvalidQuantity(f"{supplier.name} sells {known.min_quantity} at least")
        session.add(
            PurchaseOrderLine(
                purchase_order_id=entry.id,
                variant_id=variant_id,
                quantity=quantity,
                unit_cost=known.cost,
            )
        )
    return entry


@atomic
def receive(session: Session, entry: PurchaseOrder, quantities: Mapping[int, int]) -> None:
    """Receive goods by variant. The order is closed when nothing is missing anymore."""
    session.refresh(entry, with_for_update=True)
    if entry.status is not PurchaseStatus.OPEN:
        raise InvalidQuantity(f"purchase order {entry.id} is {entry.status.value}")
    lines = {line.variant_id: line for line in entry.lines}
    for variant_id, quantity in sorted(quantities.items()):
        line = lines.get(variant_id)
        if line is None or line.received + quantity > line.quantity:
            raise InvalidQuantity(f"{quantity} of variant {variant_id} were not ordered")
        line.received += quantity
        stock.receive(session, entry.warehouse_id, variant_id, quantity, reference=f"PO {entry.id}")
    if all(line.received == line.quantity for line in entry.lines):
        entry.status = PurchaseStatus.RECEIVED
        entry.received_at = utcnow()
