"""Manage carts and their items."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Session

from . import coupons, pricing, settings
from .clock import utcnow
from .db import atomic
from .errors import CartClosed, InvalidQuantity, NotFound
from .models import Cart, CartItem, CartStatus, Coupon, Customer, Variant


@dataclass(frozen=True)
class CartTotals:
    pieces: int
    subtotal: int
    discount: int
    weight_grams: int

    @property
    def payable(self) -> int:
        return self.subtotal - self.discount


@atomic
def open_cart(session: Session, customer: Customer | None = None, *, currency: str = "EUR") -> Cart:
    """Return the open cart of a customer, or a new cart. A guest always gets a new cart."""
    if customer is not None:
        cart = session.scalar(
            select(Cart).where(Cart.customer_id == customer.id, Cart.status == CartStatus.OPEN)
        )
        if cart is not None:
            return cart
    cart = Cart(customer_id=customer.id if customer else None, currency_code=currency)
    session.add(cart)
    return cart


def lock_open(session: Session, cart_id: int) -> Cart:
    """Lock and return the cart, provided that it is still open."""
    cart = session.scalar(
        select(Cart)
        .where(Cart.id == cart_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if cart is None:
        raise NotFound("cart", cart_id)
    if cart.status is not CartStatus.OPEN:
        raise CartClosed(f"cart {cart_id} is {cart.status.value}")
    return cart


@atomic
def add(session: Session, cart: Cart, variant: Variant, quantity: int = 1) -> CartItem:
    """Add pieces to the cart, in addition to those already in it."""
    limit = settings.get(session, "cart.max_quantity")
    lock_open(session, cart.id)
    if not variant.active:
        raise NotFound("variant on sale", variant.sku)
    pricing.price_of(session, variant.id, cart.currency_code)
    if quantity <= 0:
        raise InvalidQuantity(f"cannot add {quantity}")
    session.execute(
        insert(CartItem)
        .values(cart_id=cart.id, variant_id=variant.id, quantity=quantity)
        .on_conflict_do_update(
            index_elements=["cart_id", "variant_id"],
            set_={"quantity": CartItem.quantity + quantity},
        )
    )
    item = session.scalars(
        select(CartItem)
        .where(CartItem.cart_id == cart.id, CartItem.variant_id == variant.id)
        .execution_options(populate_existing=True)
    ).one()
    if item.quantity > limit:
        raise InvalidQuantity(f"at most {limit} pieces of {variant.sku}")
    _touch(session, cart)
    return item


@atomic
def set_quantity(session: Session, cart: Cart, variant: Variant, quantity: int) -> None:
    """Change how many pieces are in the cart. Zero removes the item."""
    lock_open(session, cart.id)
    if quantity < 0:
        raise InvalidQuantity(f"{quantity} pieces")
    item = session.scalar(
        select(CartItem).where(CartItem.cart_id == cart.id, CartItem.variant_id == variant.id)
    )
    if item is None:
        raise NotFound("item", variant.sku)
    if quantity == 0:
        session.delete(item)
    else:
        item.quantity = quantity
    _touch(session, cart)


def _touch(session: Session, cart: Cart) -> None:
    session.flush()
    session.execute(update(Cart).where(Cart.id == cart.id).values(updated_at=utcnow()))
    session.expire(cart)


@atomic
def apply_coupon(session: Session, cart: Cart, code: str, *, now: datetime | None = None) -> int:
    """Attach a coupon and return its current discount."""
    lock_open(session, cart.id)
    coupon = coupons.find(session, code)
    subtotal = totals(session, cart).subtotal
    coupons.check(session, coupon, cart.customer_id, subtotal, now or utcnow())
    cart.coupon_id = coupon.id
    return coupons.discount(coupon, subtotal)


def totals(session: Session, cart: Cart) -> CartTotals:
    items = session.execute(
        select(CartItem.variant_id, CartItem.quantity, Variant.weight_grams)
        .join(Variant, Variant.id == CartItem.variant_id)
        .where(CartItem.cart_id == cart.id)
    ).all()
    subtotal = sum(
        item.quantity * pricing.price_of(session, item.variant_id, cart.currency_code)
        for item in items
    )
    reduction = 0
    if cart.coupon_id is not None:
        reduction = coupons.discount(session.get_one(Coupon, cart.coupon_id), subtotal)
    return CartTotals(
        pieces=sum(item.quantity for item in items),
        subtotal=subtotal,
        discount=reduction,
        weight_grams=sum(item.quantity * item.weight_grams for item in items),
    )


@atomic
def merge(session: Session, guest: Cart, customer: Customer) -> Cart:
    """Move the items in a guest's cart to the cart of the account that signed in."""
    lock_open(session, guest.id)
    target = open_cart(session, customer, currency=guest.currency_code)
    lock_open(session, target.id)
    collected = insert(CartItem).from_select(
        ["cart_id", "variant_id", "quantity"],
        select(literal(target.id), CartItem.variant_id, CartItem.quantity).where(
            CartItem.cart_id == guest.id
        ),
    )
    session.execute(
        collected.on_conflict_do_update(
            index_elements=["cart_id", "variant_id"],
            set_={"quantity": func.greatest(CartItem.quantity, collected.excluded.quantity)},
        )
    )
    session.execute(delete(CartItem).where(CartItem.cart_id == guest.id))
    guest.status = CartStatus.ABANDONED
    session.flush()
    session.expire_all()
    return target


@atomic
def abandon_stale(session: Session, *, idle: timedelta, now: datetime | None = None) -> int:
    """Close carts that nobody has changed for a while, and return their number."""
    result = session.execute(
        update(Cart)
        .where(Cart.status == CartStatus.OPEN, Cart.updated_at < (now or utcnow()) - idle)
        .values(status=CartStatus.ABANDONED)
    )
    assert isinstance(result, CursorResult)
    return result.rowcount
