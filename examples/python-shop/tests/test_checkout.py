from datetime import datetime, timezone
from decimal import Decimal

import pytest
from sqlalchemy import func, select

from shop import carts, checkout, orders, pricing, settings, stock
from shop.errors import (
    CartClosed,
    CouponRejected,
    EmptyCart,
    NoShippingRate,
    NotFound,
    OutOfStock,
    PriceMissing,
)
from shop.models import (
    CartStatus,
    CouponKind,
    Order,
    OrderStatus,
    OutboxEvent,
    Reservation,
    Stock,
    TaxCategory,
)

NOW = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


def count(session, model):
    return session.scalar(select(func.count()).select_from(model))


def place(session, cart, customer, **options):
    return checkout.place_order(session, cart, customer.addresses[0], **options)


def test_order_repeats_the_cart(session, make):
    customer = make.customer()
    shirt, socks = make.variant("SHIRT", price=2000), make.variant("SOCKS", price=500)
    cart = make.cart(customer, (shirt, 1), (socks, 3))
    order = place(session, cart, customer, now=NOW)
    assert [(line.position, line.sku, line.quantity, line.unit_price) for line in order.lines] == [
        (1, "SHIRT", 1, 2000),
        (2, "SOCKS", 3, 500),
    ]
    assert (order.subtotal, order.discount) == (3500, 0)
    assert order.tax == 665  # 19 percent of 2000 and of 1500
    assert order.total == 3500 + 665 + order.shipping
    assert order.placed_at == NOW
    assert order.status is OrderStatus.PENDING
    assert cart.status is CartStatus.ORDERED


def test_tax_depends_on_category_and_destination(session, make):
    customer = make.customer(country="FR")
    book = make.variant(product=make.product(tax_category=TaxCategory.REDUCED), price=1000)
    toy = make.variant(price=1000)
    order = place(session, make.cart(customer, (book, 1), (toy, 1)), customer, now=NOW)
    assert [(line.tax_rate, line.tax) for line in order.lines] == [
        (Decimal("0.0550"), 55),
        (Decimal("0.2000"), 200),
    ]


def test_tax_rate_of_the_day(session, make):
    customer, variant = make.customer(), make.variant(price=1000)
    cart = make.cart(customer, (variant, 1))
    lower = checkout.quote(
        session, cart, customer.addresses[0], now=datetime(2020, 8, 1, tzinfo=timezone.utc)
    )
    today = checkout.quote(session, cart, customer.addresses[0], now=NOW)
    assert (lower.tax, today.tax) == (160, 190)


def test_discount_is_spread_over_the_lines(session, make):
    make.coupon("MINUS5", value=500, kind=CouponKind.AMOUNT)
    customer = make.customer()
    cart = make.cart(customer, (make.variant(price=1000), 1), (make.variant(price=333), 2))
    carts.apply_coupon(session, cart, "MINUS5")
    order = place(session, cart, customer, now=NOW)
    assert [line.discount for line in order.lines] == [300, 200]
    assert [line.net for line in order.lines] == [700, 466]
    assert sum(line.net for line in order.lines) == order.subtotal - order.discount


def test_full_discount_leaves_the_shipping(session, make):
    make.coupon("FREE", value=100)
    order = make.order((make.variant(price=1000), 2), coupon="FREE", now=NOW)
    assert (order.discount, order.tax) == (2000, 0)
    assert order.total == order.shipping > 0


def test_quote_promises_nothing(session, make):
    customer, variant = make.customer(), make.variant(pieces=3)
    cart = make.cart(customer, (variant, 2))
    quote = checkout.quote(session, cart, customer.addresses[0], now=NOW)
    order = place(session, cart, customer, now=NOW)
    assert quote.total == order.total
    assert count(session, Order) == 1
    with pytest.raises(EmptyCart):
        checkout.quote(session, make.cart(), customer.addresses[0])


def test_order_reserves_stock_over_warehouses(session, make):
    near, far = make.warehouse("NEAR", priority=1), make.warehouse("FAR", priority=2)
    customer, variant = make.customer(), make.variant(pieces=0)
    stock.receive(session, near.id, variant.id, 2)
    stock.receive(session, far.id, variant.id, 5)
    place(session, make.cart(customer, (variant, 4)), customer)
    held = session.execute(
        select(Reservation.warehouse_id, Reservation.quantity).order_by(Reservation.warehouse_id)
    ).all()
    assert held == [(near.id, 2), (far.id, 2)]
    assert stock.available(session, variant.id) == 3


def test_lack_of_one_item_leaves_no_trace(session, make):
    customer = make.customer()
    plenty, scarce = make.variant(pieces=10), make.variant(pieces=1)
    cart = make.cart(customer, (plenty, 5), (scarce, 2))
    with pytest.raises(OutOfStock) as refusal:
        place(session, cart, customer)
    assert refusal.value.variant_id == scarce.id
    assert count(session, Order) == count(session, Reservation) == 0
    assert session.scalar(select(func.sum(Stock.reserved))) == 0
    assert count(session, OutboxEvent) == 0
    assert cart.status is CartStatus.OPEN


def test_cart_can_be_ordered_once(session, make):
    customer, variant = make.customer(), make.variant()
    cart = make.cart(customer, (variant, 1))
    place(session, cart, customer)
    with pytest.raises(CartClosed):
        place(session, cart, customer)
    assert count(session, Order) == 1


def test_next_cart_is_a_new_one(session, make):
    customer, variant = make.customer(), make.variant()
    cart = make.cart(customer, (variant, 1))
    place(session, cart, customer)
    assert carts.open_cart(session, customer).id != cart.id


def test_empty_cart_is_not_an_order(session, make):
    customer = make.customer()
    with pytest.raises(EmptyCart):
        place(session, make.cart(customer), customer)


def test_address_must_be_the_customers(session, make):
    ann, bob = make.customer(), make.customer()
    variant = make.variant()
    with pytest.raises(NotFound):
        place(session, make.cart(ann, (variant, 1)), bob)
    with pytest.raises(NotFound):
        place(session, make.cart(None, (variant, 1)), bob)


def test_price_at_the_time_of_the_order_counts(session, make):
    customer, variant = make.customer(), make.variant(price=1000)
    cart = make.cart(customer, (variant, 1))
    pricing.set_price(session, variant, "EUR", 1500)
    order = place(session, cart, customer)
    assert order.lines[0].unit_price == 1500
    pricing.set_price(session, variant, "EUR", 9900)
    session.expire_all()
    assert order.lines[0].unit_price == 1500


def test_missing_currency(session, make):
    customer, variant = make.customer(country="GB"), make.variant()
    cart = carts.open_cart(session, customer, currency="GBP")
    with pytest.raises(PriceMissing):
        carts.add(session, cart, variant)
    pricing.set_price(session, variant, "GBP", 900)
    carts.add(session, cart, variant)
    order = place(session, cart, customer)
    assert (order.currency_code, order.shipping) == ("GBP", 1450)


def test_coupon_that_expired_meanwhile(session, make):
    make.coupon("MAY", ends_at=datetime(2024, 6, 1, tzinfo=timezone.utc))
    customer = make.customer()
    cart = make.cart(customer, (make.variant(), 1))
    carts.apply_coupon(session, cart, "MAY", now=NOW)
    with pytest.raises(CouponRejected, match="expired"):
        place(session, cart, customer, now=datetime(2024, 6, 1, tzinfo=timezone.utc))
    assert count(session, Order) == 0


def test_destination_without_a_rate(session, make):
    customer = make.customer(country="JP")
    with pytest.raises(NoShippingRate):
        place(session, make.cart(customer, (make.variant(), 1)), customer)


def test_free_shipping_counts_the_discount(session, make):
    settings.put(session, "shipping.free_from", 2000)
    make.coupon("SAVE10", value=10)
    variant = make.variant(price=1000)
    assert make.order((variant, 2)).shipping == 0
    assert make.order((variant, 2), coupon="SAVE10").shipping > 0


def test_order_is_announced(session, make):
    order = make.order()
    event = session.scalars(select(OutboxEvent)).one()
    assert event.topic == "order.placed"
    assert event.payload == {"number": order.number, "total": order.total}


def test_orders_are_found_by_number(session, make):
    order = make.order()
    assert orders.by_number(session, order.number).id == order.id
    with pytest.raises(NotFound):
        orders.by_number(session, "S99999999")
