"""Orders, from checkout to invoice, and the money paid for them."""

import enum
from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, Computed, ForeignKey, Index, Numeric, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from .base import Base, CreatedAt, Id, Quantity, pg_enum


class OrderStatus(str, enum.Enum):
    PENDING = "pending"
    PAID = "paid"
    PARTLY_SHIPPED = "partly_shipped"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    REFUNDED = "refunded"


order_status_type = pg_enum(OrderStatus, "order_status")


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = (
        Index(None, "customer_id", "placed_at"),
        Index(None, "placed_at"),
        Index(
            "orders_unfinished_idx",
            "status",
            "placed_at",
            postgresql_where=text("status IN ('pending', 'paid', 'partly_shipped')"),
        ),
        CheckConstraint("subtotal >= 0 AND tax >= 0 AND shipping >= 0", name="amounts"),
        CheckConstraint("discount BETWEEN 0 AND subtotal", name="discount"),
    )

    id: Mapped[Id]
    number: Mapped[str] = mapped_column(
        unique=True,
        server_default=text("'S' || lpad(nextval('order_number_seq')::text, 8, '0')"),
    )
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"))
    cart_id: Mapped[int | None] = mapped_column(ForeignKey("carts.id"), unique=True)
    address_id: Mapped[int] = mapped_column(ForeignKey("addresses.id"), index=True)
    status: Mapped[OrderStatus] = mapped_column(order_status_type, server_default="pending")
    currency_code: Mapped[str] = mapped_column(ForeignKey("currencies.code"))
    subtotal: Mapped[int]
    discount: Mapped[int] = mapped_column(server_default="0")
    tax: Mapped[int] = mapped_column(server_default="0")
    shipping: Mapped[int] = mapped_column(server_default="0")
    total: Mapped[int] = mapped_column(
        Computed("subtotal - discount + tax + shipping", persisted=True)
    )
    placed_at: Mapped[CreatedAt]

    lines: Mapped[list["OrderLine"]] = relationship(
        back_populates="order", order_by="OrderLine.position"
    )
    payments: Mapped[list["Payment"]] = relationship(back_populates="order", order_by="Payment.id")


class OrderLine(Base):
    __tablename__ = "order_lines"
    __table_args__ = (
        UniqueConstraint("order_id", "position"),
        CheckConstraint("quantity > 0", name="quantity"),
        CheckConstraint("discount BETWEEN 0 AND quantity * unit_price", name="discount"),
    )

    id: Mapped[Id]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id", ondelete="CASCADE"))
    position: Mapped[Quantity]
    variant_id: Mapped[int] = mapped_column(ForeignKey("variants.id"), index=True)
    sku: Mapped[str]
    description: Mapped[str]
    quantity: Mapped[Quantity]
    unit_price: Mapped[int]
    discount: Mapped[int] = mapped_column(server_default="0")
    tax_rate: Mapped[Decimal] = mapped_column(Numeric(5, 4), server_default="0")
    tax: Mapped[int] = mapped_column(server_default="0")
    net: Mapped[int] = mapped_column(Computed("quantity * unit_price - discount", persisted=True))

    order: Mapped[Order] = relationship(back_populates="lines")


class OrderEvent(Base):
    """The history of an order's status, written by a trigger."""

    __tablename__ = "order_events"
    __table_args__ = (Index(None, "order_id", "id"),)

    id: Mapped[Id]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id", ondelete="CASCADE"))
    old_status: Mapped[OrderStatus | None] = mapped_column(order_status_type)
    new_status: Mapped[OrderStatus] = mapped_column(order_status_type)
    at: Mapped[CreatedAt] = mapped_column(index=True)


class PaymentStatus(str, enum.Enum):
    PENDING = "pending"
    CAPTURED = "captured"
    FAILED = "failed"


class Payment(Base):
    __tablename__ = "payments"
    __table_args__ = (
        Index(
            "payments_provider_reference_key",
            "provider",
            "provider_reference",
            unique=True,
            postgresql_where=text("provider_reference IS NOT NULL"),
        ),
        CheckConstraint("amount > 0", name="amount"),
        CheckConstraint("(status = 'captured') = (captured_at IS NOT NULL)", name="captured_at"),
    )

    id: Mapped[Id]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), index=True)
    idempotency_key: Mapped[str] = mapped_column(unique=True)
    provider: Mapped[str]
    provider_reference: Mapped[str | None]
    amount: Mapped[int]
    status: Mapped[PaymentStatus] = mapped_column(
        pg_enum(PaymentStatus, "payment_status"), server_default="pending"
    )
    failure: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    captured_at: Mapped[datetime | None] = mapped_column(index=True)

    order: Mapped[Order] = relationship(back_populates="payments")
    refunds: Mapped[list["Refund"]] = relationship(order_by="Refund.id")


class Refund(Base):
    __tablename__ = "refunds"
    __table_args__ = (CheckConstraint("amount > 0", name="amount"),)

    id: Mapped[Id]
    payment_id: Mapped[int] = mapped_column(ForeignKey("payments.id"), index=True)
    amount: Mapped[int]
    reason: Mapped[str]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)


class InvoiceCounter(Base):
    __tablename__ = "invoice_counters"

    year: Mapped[Quantity] = mapped_column(primary_key=True, autoincrement=False)
    last: Mapped[Quantity]


class Invoice(Base):
    __tablename__ = "invoices"
    __table_args__ = (UniqueConstraint("year", "number"),)

    id: Mapped[Id]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), unique=True)
    year: Mapped[Quantity] = mapped_column(ForeignKey("invoice_counters.year"))
    number: Mapped[Quantity]
    total: Mapped[int]
    issued_at: Mapped[CreatedAt] = mapped_column(index=True)
