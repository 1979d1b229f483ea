"""Warehouses, their stock, and incoming deliveries."""

import enum
from datetime import date, datetime

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from .base import Base, CreatedAt, Id, Quantity, pg_enum


class Warehouse(Base):
    __tablename__ = "warehouses"

    id: Mapped[Id]
    code: Mapped[str] = mapped_column(String(12), unique=True)
    name: Mapped[str]
    country_code: Mapped[str] = mapped_column(ForeignKey("countries.code"), index=True)
    priority: Mapped[Quantity] = mapped_column(server_default="100")


class Stock(Base):
    __tablename__ = "stock"
    __table_args__ = (
        CheckConstraint("on_hand >= 0", name="on_hand"),
        CheckConstraint("reserved BETWEEN 0 AND on_hand", name="reserved"),
        Index(
            "stock_exhausted_idx",
            "variant_id",
            postgresql_where=text("on_hand = reserved"),
        ),
    )

    warehouse_id: Mapped[int] = mapped_column(ForeignKey("warehouses.id"), primary_key=True)
    variant_id: Mapped[int] = mapped_column(ForeignKey("variants.id"), primary_key=True, index=True)
    on_hand: Mapped[Quantity] = mapped_column(server_default="0")
    reserved: Mapped[Quantity] = mapped_column(server_default="0")

    @property
    def available(self) -> int:
        return self.on_hand - self.reserved


class MovementReason(str, enum.Enum):
    RECEIPT = "receipt"
    SALE = "sale"
    RETURN = "return"
    TRANSFER = "transfer"
    CORRECTION = "correction"


class StockMovement(Base):
    __tablename__ = "stock_movements"
    __table_args__ = (
        ForeignKeyConstraint(
            ["warehouse_id", "variant_id"], ["stock.warehouse_id", "stock.variant_id"]
        ),
        Index(None, "warehouse_id", "created_at"),
        Index(None, "variant_id", "created_at"),
        CheckConstraint("quantity <> 0", name="quantity"),
    )

    id: Mapped[Id]
    warehouse_id: Mapped[int]
    variant_id: Mapped[int]
    quantity: Mapped[Quantity]
    reason: Mapped[MovementReason] = mapped_column(pg_enum(MovementReason, "movement_reason"))
    reference: Mapped[str | None]
    created_at: Mapped[CreatedAt]


class Reservation(Base):
    """Stock in one warehouse that is reserved for an order line."""

    __tablename__ = "reservations"
    __table_args__ = (
        UniqueConstraint("order_line_id", "warehouse_id"),
        CheckConstraint("quantity > 0", name="quantity"),
        CheckConstraint("shipped BETWEEN 0 AND quantity", name="shipped"),
        Index(
            "reservations_open_idx",
            "warehouse_id",
            postgresql_where=text("shipped < quantity"),
        ),
    )

    id: Mapped[Id]
    order_line_id: Mapped[int] = mapped_column(ForeignKey("order_lines.id", ondelete="CASCADE"))
    warehouse_id: Mapped[int] = mapped_column(ForeignKey("warehouses.id"))
    quantity: Mapped[Quantity]
    shipped: Mapped[Quantity] = mapped_column(server_default="0")

    @property
    def outstanding(self) -> int:
        return self.quantity - self.shipped


class PurchaseStatus(str, enum.Enum):
    OPEN = "open"
    RECEIVED = "received"
    CANCELLED = "cancelled"


class PurchaseOrder(Base):
    __tablename__ = "purchase_orders"
    __table_args__ = (
        Index(
            "purchase_orders_open_idx",
            "expected_on",
            postgresql_where=text("status = 'open'"),
        ),
    )

    id: Mapped[Id]
    supplier_id: Mapped[int] = mapped_column(ForeignKey("suppliers.id"), index=True)
    warehouse_id: Mapped[int] = mapped_column(ForeignKey("warehouses.id"), index=True)
    status: Mapped[PurchaseStatus] = mapped_column(
        pg_enum(PurchaseStatus, "purchase_status"), server_default="open"
    )
    expected_on: Mapped[date]
    created_at: Mapped[CreatedAt]
    received_at: Mapped[datetime | None]

    lines: Mapped[list["PurchaseOrderLine"]] = relationship(order_by="PurchaseOrderLine.id")


class PurchaseOrderLine(Base):
    __tablename__ = "purchase_order_lines"
    __table_args__ = (
        UniqueConstraint("purchase_order_id", "variant_id"),
        CheckConstraint("quantity > 0", name="quantity"),
        CheckConstraint("received BETWEEN 0 AND quantity", name="received"),
    )

    id: Mapped[Id]
    purchase_order_id: Mapped[int] = mapped_column(
        ForeignKey("purchase_orders.id", ondelete="CASCADE")
    )
    variant_id: Mapped[int] = mapped_column(ForeignKey("variants.id"), index=True)
    quantity: Mapped[Quantity]
    received: Mapped[Quantity] = mapped_column(server_default="0")
    unit_cost: Mapped[int]
