"""Turn an open cart into an order."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from . import carts, coupons, outbox, pricing, shipping, stock
from .clock import utcnow
from .db import atomic
from .errors import EmptyCart, NotFound
from .models import (
    Address,
    Cart,
    CartItem,
    CartStatus,
    Coupon,
    Order,
    OrderLine,
    Product,
    Reservation,
    TaxCategory,
    TaxRate,
    Variant,
)
from .money import allocate, apply_rate


@dataclass(frozen=True)
class QuoteLine:
    variant_id: int
    sku: str
    description: str
    quantity: int
    unit_price: int
    discount: int
    tax_rate: Decimal
    tax: int


@dataclass(frozen=True)
class Quote:
    lines: tuple[QuoteLine, ...]
    subtotal: int
    discount: int
    tax: int
    shipping: int

    @property
    def total(self) -> int:
        return self.subtotal - self.discount + self.tax + self.shipping


def tax_rate(session: Session, country: str, category: TaxCategory, on: date) -> Decimal:
    """Return the rate on a day, or None where the shop doesn't collect tax."""
    rate = session.scalar(
        select(TaxRate.rate).where(
            TaxRate.country_code == country,
            TaxRate.tax_category == category,
            TaxRate.valid_from <= on,
            or_(TaxRate.valid_to.is_(None), TaxRate.valid_to > on),
        )
    )
    return rate if rate is not None else Decimal(0)


def quote(session: Session, cart: Cart, address: Address, *, now: datetime | None = None) -> Quote:
    """Return what the items in a cart cost if they are sent to an address."""
    now = now or utcnow()
    items = session.execute(
        select(CartItem.quantity, Variant, Product)
        .join(Variant, Variant.id == CartItem.variant_id)
        .join(Product, Product.id == Variant.product_id)
        .where(CartItem.cart_id == cart.id)
        .order_by(CartItem.id)
    ).all()
    if not items:
        raise EmptyCart(f"cart {cart.id}")

    prices = [
        pricing.price_of(session, variant.id, cart.currency_code, now) for _, variant, _ in items
    ]
    amounts = [item.quantity * price for item, price in zip(items, prices, strict=True)]
    subtotal = sum(amounts)

    discount = 0
    if cart.coupon_id is not None:
        coupon = session.get_one(Coupon, cart.coupon_id)
        coupons.check(session, coupon, cart.customer_id, subtotal, now)
        discount = coupons.discount(coupon, subtotal)
    shares = allocate(discount, amounts) if discount else [0] * len(amounts)

    lines = []
    for (quantity, variant, product), price, share in zip(items, prices, shares, strict=True):
        rate = tax_rate(session, address.country_code, product.tax_category, now.date())
        lines.append(
            QuoteLine(
                variant_id=variant.id,
                sku=variant.sku,
                description=product.name,
                quantity=quantity,
                unit_price=price,
                discount=share,
                tax_rate=rate,
                tax=apply_rate(quantity * price - share, rate),
            )
        )
    return Quote(
        lines=tuple(lines),
        subtotal=subtotal,
        discount=discount,
        tax=sum(line.tax for line in lines),
        shipping=shipping.cost(
            session,
            country=address.country_code,
            currency=cart.currency_code,
            weight_grams=sum(quantity * variant.weight_grams for quantity, variant, _ in items),
            goods=subtotal - discount,
        ),
    )


@atomic
def place_order(
    session: Session, cart: Cart, address: Address, *, now: datetime | None = None
) -> Order:
    """Turn a cart into an order and reserve all its goods, or fail without changes.

    All transactions take locks in the same order: cart, coupon, stock by variant.
    """
    now = now or utcnow()
    carts.lock_open(session, cart.id)
    if cart.customer_id is None or address.customer_id != cart.customer_id:
        raise NotFound("address of this customer", address.id)
    coupon = coupons.lock(session, cart.coupon_id) if cart.coupon_id is not None else None
    offer = quote(session, cart, address, now=now)

    order = Order(
        customer_id=cart.customer_id,
        cart_id=cart.id,
        address_id=address.id,
        currency_code=cart.currency_code,
        subtotal=offer.subtotal,
        discount=offer.discount,
        tax=offer.tax,
        shipping=offer.shipping,
        placed_at=now,
    )
    session.add(order)
    session.flush()
    lines = [
        OrderLine(
            order_id=order.id,
            position=position,
            variant_id=line.variant_id,
            sku=line.sku,
            description=line.description,
            quantity=line.quantity,
            unit_price=line.unit_price,
            discount=line.discount,
            tax_rate=line.tax_rate,
            tax=line.tax,
        )
        for position, line in enumerate(offer.lines, start=1)
    ]
    session.add_all(lines)
    session.flush()
    for line in sorted(lines, key=lambda line: line.variant_id):
        for part in stock.reserve(session, line.variant_id, line.quantity):
            session.add(
                Reservation(
                    order_line_id=line.id,
                    warehouse_id=part.warehouse_id,
                    quantity=part.quantity,
                )
            )
    if coupon is not None:
        coupons.redeem(session, coupon, order)
    cart.status = CartStatus.ORDERED
    outbox.emit(session, "order.placed", {"number": order.number, "total": order.total})
    return order
