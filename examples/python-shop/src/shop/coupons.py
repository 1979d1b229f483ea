"""Rules of coupons: who may use a coupon, when and how often, and the discount."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from .clock import utcnow
from .db import atomic
from .errors import CouponRejected, NotFound
from .models import Coupon, CouponKind, CouponUse, Order


@atomic
def create(
    session: Session,
    code: str,
    kind: CouponKind,
    value: int,
    *,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    min_subtotal: int = 0,
    max_uses: int | None = None,
    max_uses_per_customer: int | None = None,
) -> Coupon:
    coupon = Coupon(
        code=code.strip().upper(),
        kind=kind,
        value=value,
        starts_at=starts_at or utcnow(),
        ends_at=ends_at,
        min_subtotal=min_subtotal,
        max_uses=max_uses,
        max_uses_per_customer=max_uses_per_customer,
    )
    session.add(coupon)
    return coupon


def find(session: Session, code: str) -> Coupon:
    coupon = session.scalar(select(Coupon).where(Coupon.code == code.strip().upper()))
    if coupon is None:
        raise NotFound("coupon", code)
    return coupon


def uses(session: Session, coupon: Coupon, customer_id: int | None = None) -> int:
    count = select(func.count()).select_from(CouponUse).where(CouponUse.coupon_id == coupon.id)
    if customer_id is not None:
        count = count.where(CouponUse.customer_id == customer_id)
    return session.scalar(count) or 0


def check(
    session: Session, coupon: Coupon, customer_id: int | None, subtotal: int, now: datetime
) -> None:
    """Raise CouponRejected unless the coupon is valid for this purchase."""
    if not coupon.active:
        raise CouponRejected(coupon.code, "inactive")
    if now < coupon.starts_at:
        raise CouponRejected(coupon.code, "not yet valid")
    if coupon.ends_at is not None and now >= coupon.ends_at:
        raise CouponRejected(coupon.code, "expired")
    if subtotal < coupon.min_subtotal:
        raise CouponRejected(coupon.code, "subtotal too small")
    if coupon.max_uses is not None and uses(session, coupon) >= coupon.max_uses:
        raise CouponRejected(coupon.code, "used up")
    if (
        customer_id is not None
        and coupon.max_uses_per_customer is not None
        and uses(session, coupon, customer_id) >= coupon.max_uses_per_customer
    ):
        raise CouponRejected(coupon.code, "used up by this customer")


def discount(coupon: Coupon, subtotal: int) -> int:
    """Return the discount, at most the whole amount."""
    if coupon.kind is CouponKind.PERCENT:
        return subtotal * coupon.value // 100
    return min(coupon.value, subtotal)


def lock(session: Session, coupon_id: int) -> Coupon:
    """Lock and return the coupon. Transactions that want its last use wait here."""
    return session.scalars(
        select(Coupon)
        .where(Coupon.id == coupon_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()


@atomic
def redeem(session: Session, coupon: Coupon, order: Order) -> CouponUse:
    """Count a use. The caller must hold the lock and have checked the coupon."""
    use = CouponUse(
        coupon_id=coupon.id,
        customer_id=order.customer_id,
        order_id=order.id,
        discount=order.discount,
        used_at=order.placed_at,
    )
    session.add(use)
    return use
