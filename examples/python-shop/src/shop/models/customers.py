"""Customers, their addresses and their wish lists."""

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from .base import Base, CreatedAt, Id


class Customer(Base):
    __tablename__ = "customers"
    __table_args__ = (CheckConstraint("position('@' in email) > 1", name="email"),)

    id: Mapped[Id]
    email: Mapped[str]
    name: Mapped[str]
    phone: Mapped[str | None]
    country_code: Mapped[str] = mapped_column(ForeignKey("countries.code"), index=True)
    # Customer and default address refer to each other, so PostgreSQL checks this at commit.
    default_address_id: Mapped[int | None] = mapped_column(
        BigInteger,
        ForeignKey(
            "addresses.id",
            name="customers_default_address_id_fkey",
            deferrable=True,
            initially="DEFERRED",
            use_alter=True,
        ),
        index=True,
    )
    newsletter: Mapped[bool] = mapped_column(server_default="false")
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
    closed_at: Mapped[datetime | None]

    addresses: Mapped[list["Address"]] = relationship(
        foreign_keys="Address.customer_id", back_populates="customer", order_by="Address.id"
    )


# After an account is closed, a new account can use its email address.
Index(
    "customers_email_open_key",
    func.lower(Customer.email),
    unique=True,
    postgresql_where=text("closed_at IS NULL"),
)


class Address(Base):
    __tablename__ = "addresses"

    id: Mapped[Id]
    customer_id: Mapped[int] = mapped_column(
        ForeignKey("customers.id", ondelete="CASCADE"), index=True
    )
    recipient: Mapped[str]
    line1: Mapped[str]
    line2: Mapped[str | None]
    postcode: Mapped[str]
    city: Mapped[str]
    country_code: Mapped[str] = mapped_column(ForeignKey("countries.code"), index=True)
    created_at: Mapped[CreatedAt]

    customer: Mapped[Customer] = relationship(
        foreign_keys=[customer_id], back_populates="addresses"
    )


class Wishlist(Base):
    __tablename__ = "wishlists"
    __table_args__ = (UniqueConstraint("customer_id", "name"),)

    id: Mapped[Id]
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id", ondelete="CASCADE"))
    name: Mapped[str]
    created_at: Mapped[CreatedAt]


class WishlistItem(Base):
    __tablename__ = "wishlist_items"

    wishlist_id: Mapped[int] = mapped_column(
        ForeignKey("wishlists.id", ondelete="CASCADE"), primary_key=True
    )
    variant_id: Mapped[int] = mapped_column(
        ForeignKey("variants.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    added_at: Mapped[CreatedAt]
