"""Shipments to customers and returns from them."""

import enum
from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from .base import Base, CreatedAt, Id, Quantity, pg_enum


class Shipment(Base):
    __tablename__ = "shipments"
    __table_args__ = (
        Index(
            "shipments_tracking_number_key",
            "carrier_code",
            "tracking_number",
            unique=True,
            postgresql_where=text("tracking_number IS NOT NULL"),
        ),
        Index(
            "shipments_in_transit_idx",
            "shipped_at",
            postgresql_where=text("delivered_at IS NULL"),
        ),
        CheckConstraint("delivered_at >= shipped_at", name="delivered_at"),
    )

    id: Mapped[Id]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), index=True)
    warehouse_id: Mapped[int] = mapped_column(ForeignKey("warehouses.id"), index=True)
    carrier_code: Mapped[str] = mapped_column(ForeignKey("carriers.code"))
    tracking_number: Mapped[str | None]
    shipped_at: Mapped[CreatedAt]
    delivered_at: Mapped[datetime | None]

    lines: Mapped[list["ShipmentLine"]] = relationship(order_by="ShipmentLine.order_line_id")


class ShipmentLine(Base):
    __tablename__ = "shipment_lines"
    __table_args__ = (CheckConstraint("quantity > 0", name="quantity"),)

    shipment_id: Mapped[int] = mapped_column(
        ForeignKey("shipments.id", ondelete="CASCADE"), primary_key=True
    )
    order_line_id: Mapped[int] = mapped_column(
        ForeignKey("order_lines.id"), primary_key=True, index=True
    )
    quantity: Mapped[Quantity]


class ReturnStatus(str, enum.Enum):
    REQUESTED = "requested"
    RECEIVED = "received"
    REJECTED = "rejected"


class Return(Base):
    __tablename__ = "returns"

    id: Mapped[Id]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), index=True)
    status: Mapped[ReturnStatus] = mapped_column(
        pg_enum(ReturnStatus, "return_status"), server_default="requested", index=True
    )
    reason: Mapped[str]
    requested_at: Mapped[CreatedAt]
    received_at: Mapped[datetime | None]

    lines: Mapped[list["ReturnLine"]] = relationship(order_by="ReturnLine.order_line_id")


class ReturnLine(Base):
    __tablename__ = "return_lines"
    __table_args__ = (
        UniqueConstraint("return_id", "order_line_id"),
        CheckConstraint("quantity > 0", name="quantity"),
    )

    id: Mapped[Id]
    return_id: Mapped[int] = mapped_column(ForeignKey("returns.id", ondelete="CASCADE"))
    order_line_id: Mapped[int] = mapped_column(ForeignKey("order_lines.id"), index=True)
    quantity: Mapped[Quantity]
