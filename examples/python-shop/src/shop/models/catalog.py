"""Products, their categories, prices and suppliers."""

import enum
from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Computed,
    ForeignKey,
    Index,
    UniqueConstraint,
    desc,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column, relationship

from .base import Base, CreatedAt, Id, Quantity, pg_enum
from .reference import TaxCategory, tax_category_type


class Supplier(Base):
    __tablename__ = "suppliers"
    __table_args__ = (CheckConstraint("lead_time_days >= 0", name="lead_time_days"),)

    id: Mapped[Id]
    name: Mapped[str] = mapped_column(unique=True)
    country_code: Mapped[str] = mapped_column(ForeignKey("countries.code"), index=True)
    lead_time_days: Mapped[Quantity] = mapped_column(server_default="7")


class Category(Base):
    __tablename__ = "categories"
    __table_args__ = (
        # Deferred, so that siblings can swap positions within a transaction.
        UniqueConstraint("parent_id", "position", deferrable=True, initially="DEFERRED"),
        CheckConstraint("parent_id <> id", name="parent_id"),
    )

    id: Mapped[Id]
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("categories.id"))
    name: Mapped[str]
    slug: Mapped[str] = mapped_column(unique=True)
    position: Mapped[Quantity]


class Product(Base):
    __tablename__ = "products"
    __table_args__ = (
        Index(
            "products_active_created_at_idx",
            desc("created_at"),
            postgresql_where=text("active"),
        ),
        Index(None, "search", postgresql_using="gin"),
    )

    id: Mapped[Id]
    supplier_id: Mapped[int | None] = mapped_column(ForeignKey("suppliers.id"), index=True)
    name: Mapped[str]
    slug: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(server_default="")
    tax_category: Mapped[TaxCategory] = mapped_column(tax_category_type, server_default="standard")
    active: Mapped[bool] = mapped_column(server_default="true")
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]
    search: Mapped[Any] = mapped_column(
        TSVECTOR,
        Computed(
            "setweight(to_tsvector('english', name), 'A')"
            " || setweight(to_tsvector('english', description), 'B')",
            persisted=True,
        ),
        deferred=True,
    )

    variants: Mapped[list["Variant"]] = relationship(
        back_populates="product", order_by="Variant.id"
    )


class ProductCategory(Base):
    __tablename__ = "product_categories"

    product_id: Mapped[int] = mapped_column(
        ForeignKey("products.id", ondelete="CASCADE"), primary_key=True
    )
    category_id: Mapped[int] = mapped_column(
        ForeignKey("categories.id"), primary_key=True, index=True
    )


class ProductImage(Base):
    __tablename__ = "product_images"
    __table_args__ = (UniqueConstraint("product_id", "position"),)

    id: Mapped[Id]
    product_id: Mapped[int] = mapped_column(ForeignKey("products.id", ondelete="CASCADE"))
    position: Mapped[Quantity]
    path: Mapped[str] = mapped_column(unique=True)


class Variant(Base):
    __tablename__ = "variants"
    __table_args__ = (
        Index(None, "attributes", postgresql_using="gin"),
        CheckConstraint("weight_grams >= 0", name="weight_grams"),
    )

    id: Mapped[Id]
    product_id: Mapped[int] = mapped_column(
        ForeignKey("products.id", ondelete="CASCADE"), index=True
    )
    sku: Mapped[str] = mapped_column(unique=True)
    attributes: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    weight_grams: Mapped[Quantity] = mapped_column(server_default="0")
    active: Mapped[bool] = mapped_column(server_default="true")

    product: Mapped[Product] = relationship(back_populates="variants")


class Price(Base):
    __tablename__ = "prices"
    __table_args__ = (
        Index(
            "prices_current_key",
            "variant_id",
            "currency_code",
            unique=True,
            postgresql_where=text("valid_to IS NULL"),
        ),
        Index(None, "variant_id", "currency_code", "valid_from"),
        CheckConstraint("amount >= 0", name="amount"),
        CheckConstraint("valid_to > valid_from", name="period"),
    )

    id: Mapped[Id]
    variant_id: Mapped[int] = mapped_column(ForeignKey("variants.id", ondelete="CASCADE"))
    currency_code: Mapped[str] = mapped_column(ForeignKey("currencies.code"), index=True)
    amount: Mapped[int]
    valid_from: Mapped[datetime] = mapped_column(server_default=func.now())
    valid_to: Mapped[datetime | None]


class SupplierOffer(Base):
    __tablename__ = "supplier_offers"
    __table_args__ = (
        CheckConstraint("cost >= 0", name="cost"),
        CheckConstraint("min_quantity > 0", name="min_quantity"),
    )

    supplier_id: Mapped[int] = mapped_column(
        ForeignKey("suppliers.id", ondelete="CASCADE"), primary_key=True
    )
    variant_id: Mapped[int] = mapped_column(
        ForeignKey("variants.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    cost: Mapped[int]
    currency_code: Mapped[str] = mapped_column(ForeignKey("currencies.code"))
    min_quantity: Mapped[Quantity] = mapped_column(server_default="1")


class ReviewStatus(str, enum.Enum):
    PENDING = "pending"
    PUBLISHED = "published"
    REJECTED = "rejected"


class Review(Base):
    __tablename__ = "reviews"
    __table_args__ = (
        UniqueConstraint("product_id", "customer_id"),
        Index(
            "reviews_published_idx",
            "product_id",
            "rating",
            postgresql_where=text("status = 'published'"),
        ),
        CheckConstraint("rating BETWEEN 1 AND 5", name="rating"),
    )

    id: Mapped[Id]
    product_id: Mapped[int] = mapped_column(ForeignKey("products.id", ondelete="CASCADE"))
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"), index=True)
    rating: Mapped[Quantity]
    title: Mapped[str]
    body: Mapped[str] = mapped_column(server_default="")
    status: Mapped[ReviewStatus] = mapped_column(
        pg_enum(ReviewStatus, "review_status"), server_default="pending"
    )
    created_at: Mapped[CreatedAt]
