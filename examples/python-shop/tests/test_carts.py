from datetime import datetime, timedelta, timezone

import pytest
from sqlalchemy import select

from shop import carts, catalog, pricing, settings
from shop.errors import CartClosed, CouponRejected, InvalidQuantity, NotFound, PriceMissing
from shop.models import CartItem, CartStatus


def contents(session, cart):
    rows = session.execute(
        select(CartItem.variant_id, CartItem.quantity)
        .where(CartItem.cart_id == cart.id)
        .order_by(CartItem.variant_id)
    )
    return [tuple(row) for row in rows]


def test_a_customer_has_one_open_cart(session, make):
    customer = make.customer()
    assert carts.open_cart(session, customer).id == carts.open_cart(session, customer).id
    assert carts.open_cart(session).id != carts.open_cart(session).id


def test_pieces_of_a_variant_add_up(session, make):
    variant, cart = make.variant(), make.cart()
    carts.add(session, cart, variant, 2)
    assert carts.add(session, cart, variant).quantity == 3
    assert contents(session, cart) == [(variant.id, 3)]


@pytest.mark.parametrize("quantity", [0, -1])
def test_adding_needs_a_quantity(session, make, quantity):
    variant, cart = make.variant(), make.cart()
    with pytest.raises(InvalidQuantity):
        carts.add(session, cart, variant, quantity)


def test_quantity_limit_counts_what_is_there(session, make):
    settings.put(session, "cart.max_quantity", 5)
    variant, cart = make.variant(), make.cart()
    carts.add(session, cart, variant, 4)
    with pytest.raises(InvalidQuantity, match="at most 5"):
        carts.add(session, cart, variant, 2)
    assert contents(session, cart) == [(variant.id, 4)]


def test_only_variants_on_sale_with_a_price(session, make):
    cart = make.cart()
    with pytest.raises(PriceMissing):
        carts.add(session, cart, make.variant(price=None))
    gone = make.variant()
    catalog.deactivate(session, gone.product)
    with pytest.raises(NotFound):
        carts.add(session, cart, gone)
    assert contents(session, cart) == []


def test_setting_quantities(session, make):
    one, two = make.variant(), make.variant()
    cart = make.cart(None, (one, 1), (two, 2))
    carts.set_quantity(session, cart, one, 7)
    carts.set_quantity(session, cart, two, 0)
    assert contents(session, cart) == [(one.id, 7)]
    with pytest.raises(NotFound):
        carts.set_quantity(session, cart, two, 1)
    with pytest.raises(InvalidQuantity):
        carts.set_quantity(session, cart, one, -1)


def test_totals(session, make):
    cart = make.cart(
        None,
        (make.variant(price=1000, weight_grams=300), 2),
        (make.variant(price=250, weight_grams=50), 3),
    )
    totals = carts.totals(session, cart)
    assert (totals.pieces, totals.subtotal, totals.weight_grams) == (5, 2750, 750)
    assert totals.payable == 2750


def test_totals_follow_the_price(session, make):
    variant = make.variant(price=1000)
    cart = make.cart(None, (variant, 2))
    pricing.set_price(session, variant, "EUR", 900)
    assert carts.totals(session, cart).subtotal == 1800


def test_empty_cart_costs_nothing(session, make):
    totals = carts.totals(session, make.cart())
    assert (totals.pieces, totals.payable) == (0, 0)


def test_coupon_reduces_the_totals(session, make):
    make.coupon("SAVE10", value=10)
    cart = make.cart(None, (make.variant(price=999), 1))
    assert carts.apply_coupon(session, cart, " save10 ") == 99
    assert carts.totals(session, cart).payable == 900


def test_rejected_coupon_is_not_attached(session, make):
    make.coupon("BIG", min_subtotal=5000)
    cart = make.cart(None, (make.variant(price=1000), 1))
    with pytest.raises(CouponRejected):
        carts.apply_coupon(session, cart, "BIG")
    with pytest.raises(NotFound):
        carts.apply_coupon(session, cart, "NONE")
    assert cart.coupon_id is None


def test_merge_keeps_the_larger_quantity(session, make):
    both_more, both_less, mine, theirs = (make.variant() for _ in range(4))
    customer = make.customer()
    target = make.cart(customer, (both_more, 5), (both_less, 1), (mine, 2))
    guest = make.cart(None, (both_more, 3), (both_less, 4), (theirs, 6))
    assert carts.merge(session, guest, customer).id == target.id
    assert contents(session, target) == [
        (both_more.id, 5),
        (both_less.id, 4),
        (mine.id, 2),
        (theirs.id, 6),
    ]
    assert contents(session, guest) == []
    assert guest.status is CartStatus.ABANDONED


def test_merge_opens_a_cart_when_there_is_none(session, make):
    variant, customer = make.variant(), make.customer()
    guest = make.cart(None, (variant, 2))
    merged = carts.merge(session, guest, customer)
    assert merged.id != guest.id
    assert contents(session, merged) == [(variant.id, 2)]
    with pytest.raises(CartClosed):
        carts.merge(session, guest, customer)


def test_stale_carts_are_abandoned(session, make):
    old, fresh = make.cart(), make.cart(None, (make.variant(), 1))
    now = datetime.now(timezone.utc)
    old.updated_at = now - timedelta(days=31)
    session.commit()
    assert carts.abandon_stale(session, idle=timedelta(days=30), now=now) == 1
    session.expire_all()
    assert (old.status, fresh.status) == (CartStatus.ABANDONED, CartStatus.OPEN)
    assert carts.abandon_stale(session, idle=timedelta(days=30), now=now) == 0


def test_a_change_keeps_a_cart_alive(session, make):
    variant, cart = make.variant(), make.cart()
    cart.updated_at = datetime(2020, 1, 1, tzinfo=timezone.utc)
    session.commit()
    carts.add(session, cart, variant)
    assert carts.abandon_stale(session, idle=timedelta(days=30)) == 0


def test_closed_cart_takes_nothing(session, make):
    variant, cart = make.variant(), make.cart()
    cart.status = CartStatus.ORDERED
    session.commit()
    with pytest.raises(CartClosed):
        carts.add(session, cart, variant)
    with pytest.raises(NotFound):
        carts.lock_open(session, 4711)


def test_variant_in_a_cart_cannot_be_deleted(make, rejects):
    make.cart(None, (make.variant(pieces=0), 1))
    rejects("cart_items_variant_id_fkey", "DELETE FROM variants")
