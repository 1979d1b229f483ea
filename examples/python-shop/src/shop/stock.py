"""Stock in the warehouses, and its reservations."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from .db import atomic
from .errors import InvalidQuantity, NotFound, OutOfStock
from .models import MovementReason, Stock, StockMovement, Variant, Warehouse


@dataclass(frozen=True)
class Allocation:
    warehouse_id: int
    quantity: int


def _record(
    session: Session, stock: Stock, quantity: int, reason: MovementReason, reference: str | None
) -> None:
    session.add(
        StockMovement(
            warehouse_id=stock.warehouse_id,
            variant_id=stock.variant_id,
            quantity=quantity,
            reason=reason,
            reference=reference,
        )
    )


def locked(session: Session, warehouse_id: int, variant_id: int) -> Stock:
    """Return a variant's stock in a warehouse, locked until the transaction ends."""
    stock = session.scalar(
        select(Stock)
        .where(Stock.warehouse_id == warehouse_id, Stock.variant_id == variant_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if stock is None:
        raise NotFound("stock", (warehouse_id, variant_id))
    return stock


@atomic
def receive(
    session: Session,
    warehouse_id: int,
    variant_id: int,
    quantity: int,
    *,
    reason: MovementReason = MovementReason.RECEIPT,
    reference: str | None = None,
) -> Stock:
    """Add to the stock. Creates the row when goods arrive for the first time."""
    if quantity <= 0:
        raise InvalidQuantity(f"cannot receive {quantity}")
    session.execute(
        insert(Stock)
        .values(warehouse_id=warehouse_id, variant_id=variant_id, on_hand=quantity)
        .on_conflict_do_update(
            index_elements=["warehouse_id", "variant_id"],
            set_={"on_hand": Stock.on_hand + quantity},
        )
    )
    stock = locked(session, warehouse_id, variant_id)
    _record(session, stock, quantity, reason, reference)
    return stock


@atomic
def correct(session: Session, warehouse_id: int, variant_id: int, counted: int) -> int:
    """Set the stock to the counted number, and return the difference."""
    stock = locked(session, warehouse_id, variant_id)
    if counted < stock.reserved:
        raise InvalidQuantity(f"{counted} counted, but {stock.reserved} are promised")
    difference = counted - stock.on_hand
    if difference:
        stock.on_hand = counted
        _record(session, stock, difference, MovementReason.CORRECTION, None)
    return difference


@atomic
def transfer(
    session: Session, variant_id: int, source_id: int, target_id: int, quantity: int
) -> None:
    """Move free stock from one warehouse to another."""
    if quantity <= 0 or source_id == target_id:
        raise InvalidQuantity("a transfer needs a quantity and two warehouses")
    source = locked(session, source_id, variant_id)
    if source.available < quantity:
        raise OutOfStock(variant_id, quantity, source.available)
    source.on_hand -= quantity
    _record(session, source, -quantity, MovementReason.TRANSFER, f"to {target_id}")
    receive(
        session,
        target_id,
        variant_id,
        quantity,
        reason=MovementReason.TRANSFER,
        reference=f"from {source_id}",
    )


@atomic
def reserve(session: Session, variant_id: int, quantity: int) -> list[Allocation]:
    """Reserve stock, from preferred warehouses first. Reserves either all of it or nothing."""
    if quantity <= 0:
        raise InvalidQuantity(f"cannot reserve {quantity}")
    rows = session.scalars(
        select(Stock)
        .join(Warehouse, Warehouse.id == Stock.warehouse_id)
        .where(Stock.variant_id == variant_id)
        .order_by(Warehouse.priority, Warehouse.id)
        .with_for_update(of=Stock)
        .execution_options(populate_existing=True)
    ).all()
    free = sum(row.available for row in rows)
    if free < quantity:
        raise OutOfStock(variant_id, quantity, free)
    allocations = []
    for row in rows:
        taken = min(quantity, row.available)
        if taken:
            row.reserved += taken
            quantity -= taken
            allocations.append(Allocation(row.warehouse_id, taken))
    return allocations


@atomic
def release(session: Session, warehouse_id: int, variant_id: int, quantity: int) -> None:
    """Cancel reservations."""
    stock = locked(session, warehouse_id, variant_id)
    if not 0 < quantity <= stock.reserved:
        raise InvalidQuantity(f"cannot release {quantity} of {stock.reserved}")
    stock.reserved -= quantity


@atomic
def dispatch(
    session: Session, warehouse_id: int, variant_id: int, quantity: int, reference: str
) -> None:
    """Ship reserved stock."""
    stock = locked(session, warehouse_id, variant_id)
    if not 0 < quantity <= stock.reserved:
        raise InvalidQuantity(f"cannot dispatch {quantity} of {stock.reserved}")
    stock.reserved -= quantity
    stock.on_hand -= quantity
    _record(session, stock, -quantity, MovementReason.SALE, reference)


def available(session: Session, variant_id: int) -> int:
    return (
        session.scalar(
            select(func.coalesce(func.sum(Stock.on_hand - Stock.reserved), 0)).where(
                Stock.variant_id == variant_id
            )
        )
        or 0
    )


def low(session: Session, threshold: int) -> list[tuple[str, int]]:
    """Return active variants with at most `threshold` free pieces, scarcest first."""
    free = func.coalesce(func.sum(Stock.on_hand - Stock.reserved), 0)
    rows = session.execute(
        select(Variant.sku, free.label("free"))
        .outerjoin(Stock, Stock.variant_id == Variant.id)
        .where(Variant.active)
        .group_by(Variant.id)
        .having(free <= threshold)
        .order_by("free", Variant.sku)
    )
    return [(sku, int(quantity)) for sku, quantity in rows]
