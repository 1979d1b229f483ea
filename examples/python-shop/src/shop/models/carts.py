"""Carts and coupons, which precede an order."""

import enum
import uuid
from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from .base import Base, CreatedAt, Id, Quantity, pg_enum
from .catalog import Variant


class CouponKind(str, enum.Enum):
    PERCENT = "percent"
    AMOUNT = "amount"


class Coupon(Base):
    __tablename__ = "coupons"
    __table_args__ = (
        CheckConstraint("code = upper(code)", name="code"),
        CheckConstraint("value > 0 AND (kind <> 'percent' OR value <= 100)", name="value"),
        CheckConstraint("ends_at > starts_at", name="period"),
        Index(
            "coupons_active_ends_at_idx",
            "ends_at",
            postgresql_where=text("active"),
        ),
    )

    id: Mapped[Id]
    code: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[CouponKind] = mapped_column(pg_enum(CouponKind, "coupon_kind"))
    value: Mapped[int]
    min_subtotal: Mapped[int] = mapped_column(server_default="0")
    starts_at: Mapped[datetime]
    ends_at: Mapped[datetime | None]
    max_uses: Mapped[Quantity | None]
    max_uses_per_customer: Mapped[Quantity | None]
    active: Mapped[bool] = mapped_column(server_default="true")


class CouponUse(Base):
    __tablename__ = "coupon_uses"
    __table_args__ = (
        Index(None, "coupon_id", "customer_id"),
        CheckConstraint("discount >= 0", name="discount"),
    )

    id: Mapped[Id]
    coupon_id: Mapped[int] = mapped_column(ForeignKey("coupons.id"))
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"), index=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id", ondelete="CASCADE"), unique=True)
    discount: Mapped[int]
    used_at: Mapped[CreatedAt]


class CartStatus(str, enum.Enum):
    OPEN = "open"
    ORDERED = "ordered"
    ABANDONED = "abandoned"


class Cart(Base):
    __tablename__ = "carts"
    __table_args__ = (
        Index(
            "carts_open_customer_key",
            "customer_id",
            unique=True,
            postgresql_where=text("status = 'open'"),
        ),
        Index(None, "status", "updated_at"),
    )

    id: Mapped[Id]
    token: Mapped[uuid.UUID] = mapped_column(unique=True, server_default=text("gen_random_uuid()"))
    customer_id: Mapped[int | None] = mapped_column(
        ForeignKey("customers.id", ondelete="CASCADE"), index=True
    )
    status: Mapped[CartStatus] = mapped_column(
        pg_enum(CartStatus, "cart_status"), server_default="open"
    )
    currency_code: Mapped[str] = mapped_column(ForeignKey("currencies.code"))
    coupon_id: Mapped[int | None] = mapped_column(ForeignKey("coupons.id"), index=True)
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]

    items: Mapped[list["CartItem"]] = relationship(order_by="CartItem.id")


class CartItem(Base):
    __tablename__ = "cart_items"
    __table_args__ = (
        UniqueConstraint("cart_id", "variant_id"),
        CheckConstraint("quantity > 0", name="quantity"),
    )

    id: Mapped[Id]
    cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id", ondelete="CASCADE"))
    variant_id: Mapped[int] = mapped_column(ForeignKey("variants.id"), index=True)
    quantity: Mapped[Quantity]
    added_at: Mapped[CreatedAt]

    variant: Mapped[Variant] = relationship()
