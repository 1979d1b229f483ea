"""Short ways to create a test's initial rows, using the services themselves."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import psycopg
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from shop import carts, catalog, checkout, coupons, customers, payments, pricing, shipping, stock
from shop.clock import utcnow
from shop.db import atomic
from shop.models import (
    Address,
    Cart,
    Category,
    Coupon,
    CouponKind,
    Customer,
    Order,
    Payment,
    Product,
    Supplier,
    TaxCategory,
    Variant,
    Warehouse,
)

P = ParamSpec("P")
R = TypeVar("R")

LONG_AGO = datetime.fromisoformat("2019-01-01T00:00:00+00:00")


def diagnosis(error: DBAPIError) -> psycopg.errors.Diagnostic:
    """Return the parts of a server error that don't depend on the server's language."""
    assert isinstance(error.orig, psycopg.Error)
    return error.orig.diag


class FakeGateway:
    """A payment provider that records its requests."""

    name = "fake"

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.calls = 0
        self.refuse: str | None = None

    def charge(self, amount: int, currency: str, key: str) -> str:
        self.calls += 1
        if self.refuse is not None:
            raise payments.Declined(self.refuse)
        self.charges[key] = amount
        return f"ref-{key}"


def one_transaction(method: Callable[P, R]) -> Callable[P, R]:
    """Run all services that a factory method calls in one transaction."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        factory: Any = args[0]
        return atomic(lambda session: method(*args, **kwargs))(factory.session)

    return run


class Factory:
    def __init__(self, session: Session) -> None:
        self.session = session
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    @one_transaction
    def customer(
        self, email: str | None = None, *, country: str = "DE", address: bool = True
    ) -> Customer:
        number = self._next()
        customer = customers.register(
            self.session,
            email or f"customer{number}@example.com",
            f"Customer {number}",
            country=country,
        )
        if address:
            self.address(customer)
        return customer

    def address(self, customer: Customer, country: str | None = None) -> Address:
        return customers.add_address(
            self.session,
            customer,
            line1="1 Main Street",
            postcode="12345",
            city="Springfield",
            country=country,
        )

    def product(
        self,
        name: str | None = None,
        *,
        description: str = "",
        tax_category: TaxCategory = TaxCategory.STANDARD,
        categories: Sequence[Category] = (),
    ) -> Product:
        return catalog.create_product(
            self.session,
            name or f"Product {self._next()}",
            description=description,
            tax_category=tax_category,
            categories=categories,
        )

    @one_transaction
    def warehouse(self, code: str = "MAIN", priority: int = 100) -> Warehouse:
        warehouse = Warehouse(
            code=code, name=f"Warehouse {code}", country_code="DE", priority=priority
        )
        self.session.add(warehouse)
        self.session.flush()
        return warehouse

    def _main_warehouse(self) -> Warehouse:
        found = self.session.scalar(select(Warehouse).order_by(Warehouse.id).limit(1))
        return found or self.warehouse()

    @one_transaction
    def variant(
        self,
        sku: str | None = None,
        *,
        product: Product | None = None,
        price: int | None = 1000,
        currency: str = "EUR",
        pieces: int = 10,
        weight_grams: int = 100,
        attributes: dict[str, Any] | None = None,
    ) -> Variant:
        """Create a variant on sale, with `pieces` in the first warehouse."""
        variant = catalog.add_variant(
            self.session,
            product or self.product(),
            sku or f"SKU-{self._next()}",
            weight_grams=weight_grams,
            attributes=attributes,
        )
        if price is not None:
            pricing.set_price(self.session, variant, currency, price, since=LONG_AGO)
        if pieces:
            stock.receive(self.session, self._main_warehouse().id, variant.id, pieces)
        return variant

    @one_transaction
    def supplier(self, name: str = "Acme", lead_time_days: int = 7) -> Supplier:
        supplier = Supplier(name=name, country_code="DE", lead_time_days=lead_time_days)
        self.session.add(supplier)
        self.session.flush()
        return supplier

    def coupon(
        self,
        code: str = "SAVE10",
        *,
        kind: CouponKind = CouponKind.PERCENT,
        value: int = 10,
        **limits: Any,
    ) -> Coupon:
        limits.setdefault("starts_at", LONG_AGO)
        return coupons.create(self.session, code, kind, value, **limits)

    @one_transaction
    def cart(self, customer: Customer | None = None, *items: tuple[Variant, int]) -> Cart:
        cart = carts.open_cart(self.session, customer)
        for variant, quantity in items:
            carts.add(self.session, cart, variant, quantity)
        return cart

    @one_transaction
    def order(
        self,
        *items: tuple[Variant, int],
        customer: Customer | None = None,
        now: datetime | None = None,
        coupon: str | None = None,
    ) -> Order:
        """Create an order that awaits payment."""
        customer = customer or self.customer()
        cart = self.cart(customer, *(items or ((self.variant(), 1),)))
        if coupon is not None:
            carts.apply_coupon(self.session, cart, coupon)
        address = self.session.get_one(Address, customer.default_address_id)
        return checkout.place_order(self.session, cart, address, now=now)

    def payment(self, order: Order, amount: int | None = None) -> Payment:
        return payments.capture(
            self.session,
            order,
            order.total if amount is None else amount,
            f"key-{order.id}-{self._next()}",
            FakeGateway(),
        )

    def paid_order(self, *items: tuple[Variant, int], **options: Any) -> Order:
        order = self.order(*items, **options)
        self.payment(order)
        return order

    def delivered_order(
        self, *items: tuple[Variant, int], delivered: datetime | None = None, **options: Any
    ) -> Order:
        delivered = delivered or utcnow()
        order = self.paid_order(*items, **options)
        for warehouse_id in shipping.to_ship(self.session, order):
            shipment = shipping.ship(
                self.session, order.id, warehouse_id, "PARCEL", now=delivered - timedelta(days=1)
            )
            shipping.deliver(self.session, shipment, now=delivered)
        return order
