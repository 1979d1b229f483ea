"""Lookup tables the migrations fill; the application only reads them."""

import enum
from datetime import date
from decimal import Decimal

from sqlalchemy import CheckConstraint, ForeignKey, Index, Numeric, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from .base import Base, Id, Quantity, pg_enum


class TaxCategory(str, enum.Enum):
    STANDARD = "standard"
    REDUCED = "reduced"
    ZERO = "zero"


tax_category_type = pg_enum(TaxCategory, "tax_category")


class Currency(Base):
    __tablename__ = "currencies"

    code: Mapped[str] = mapped_column(String(3), primary_key=True)
    name: Mapped[str]
    minor_units: Mapped[Quantity] = mapped_column(server_default="2")


class Country(Base):
    __tablename__ = "countries"

    code: Mapped[str] = mapped_column(String(2), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    currency_code: Mapped[str] = mapped_column(ForeignKey("currencies.code"), index=True)
    in_eu: Mapped[bool] = mapped_column(server_default="false")


class TaxRate(Base):
    __tablename__ = "tax_rates"
    __table_args__ = (
        UniqueConstraint("country_code", "tax_category", "valid_from"),
        CheckConstraint("rate >= 0 AND rate < 1", name="rate"),
        CheckConstraint("valid_to > valid_from", name="period"),
    )

    id: Mapped[Id]
    country_code: Mapped[str] = mapped_column(ForeignKey("countries.code"))
    tax_category: Mapped[TaxCategory] = mapped_column(tax_category_type)
    rate: Mapped[Decimal] = mapped_column(Numeric(5, 4))
    valid_from: Mapped[date]
    valid_to: Mapped[date | None]


class Carrier(Base):
    __tablename__ = "carriers"

    code: Mapped[str] = mapped_column(String(12), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class ShippingRate(Base):
    __tablename__ = "shipping_rates"
    __table_args__ = (
        UniqueConstraint("carrier_code", "country_code", "currency_code", "max_weight_grams"),
        Index(None, "country_code", "currency_code", "max_weight_grams"),
        CheckConstraint("max_weight_grams > 0", name="max_weight_grams"),
        CheckConstraint("amount >= 0", name="amount"),
    )

    id: Mapped[Id]
    carrier_code: Mapped[str] = mapped_column(ForeignKey("carriers.code"))
    country_code: Mapped[str] = mapped_column(ForeignKey("countries.code"))
    currency_code: Mapped[str] = mapped_column(ForeignKey("currencies.code"))
    max_weight_grams: Mapped[Quantity]
    amount: Mapped[int]


SEEDED_TABLES = frozenset(
    model.__tablename__ for model in (Currency, Country, TaxRate, Carrier, ShippingRate)
)
