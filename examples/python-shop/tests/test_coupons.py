from datetime import datetime, timedelta, timezone

import pytest

from shop import cancellation, coupons
from shop.errors import CouponRejected
from shop.models import Coupon, CouponKind, CouponUse

START = datetime(2024, 5, 1, tzinfo=timezone.utc)
END = datetime(2024, 6, 1, tzinfo=timezone.utc)


def reason(session, coupon, subtotal=1000, now=START, customer_id=None):
    try:
        coupons.check(session, coupon, customer_id, subtotal, now)
    except CouponRejected as refusal:
        return refusal.reason
    return None


@pytest.mark.parametrize(
    ("kind", "value", "subtotal", "expected"),
    [
        (CouponKind.PERCENT, 10, 999, 99),
        (CouponKind.PERCENT, 100, 999, 999),
        (CouponKind.AMOUNT, 500, 2000, 500),
        (CouponKind.AMOUNT, 500, 300, 300),
    ],
)
def test_discount(kind, value, subtotal, expected):
    assert coupons.discount(Coupon(kind=kind, value=value), subtotal) == expected


def test_code_is_found_without_case(session, make):
    coupon = make.coupon("Spring")
    assert coupon.code == "SPRING"
    assert coupons.find(session, "  spring").id == coupon.id


def test_code_is_unique(session, make):
    make.coupon("SPRING")
    with pytest.raises(Exception, match="coupons_code_key"):
        make.coupon("spring")


def test_period_includes_its_start_and_excludes_its_end(session, make):
    coupon = make.coupon(starts_at=START, ends_at=END)
    second = timedelta(seconds=1)
    assert reason(session, coupon, now=START - second) == "not yet valid"
    assert reason(session, coupon, now=START) is None
    assert reason(session, coupon, now=END - second) is None
    assert reason(session, coupon, now=END) == "expired"


def test_minimum_subtotal(session, make):
    coupon = make.coupon(min_subtotal=5000)
    assert reason(session, coupon, subtotal=4999) == "subtotal too small"
    assert reason(session, coupon, subtotal=5000) is None


def test_inactive_coupon(session, make):
    coupon = make.coupon()
    coupon.active = False
    session.commit()
    assert reason(session, coupon) == "inactive"


def test_use_limit(session, make):
    coupon, variant = make.coupon(max_uses=2), make.variant()
    for _ in range(2):
        assert reason(session, coupon) is None
        make.order((variant, 1), coupon="SAVE10")
    assert coupons.uses(session, coupon) == 2
    assert reason(session, coupon) == "used up"


def test_use_limit_per_customer(session, make):
    coupon, variant = make.coupon(max_uses_per_customer=1), make.variant()
    ann, bob = make.customer(), make.customer()
    make.order((variant, 1), customer=ann, coupon="SAVE10")
    assert reason(session, coupon, customer_id=ann.id) == "used up by this customer"
    assert reason(session, coupon, customer_id=bob.id) is None
    assert reason(session, coupon, customer_id=None) is None


def test_use_keeps_the_discount_of_its_order(session, make):
    coupon = make.coupon(value=25)
    order = make.order((make.variant(price=1000), 2), coupon="SAVE10")
    use = session.get_one(CouponUse, 1)
    assert (use.coupon_id, use.order_id, use.discount) == (coupon.id, order.id, 500)
    assert use.used_at == order.placed_at


def test_cancelled_order_gives_its_use_back(session, make):
    coupon = make.coupon(max_uses=1)
    order = make.order(coupon="SAVE10")
    assert reason(session, coupon) == "used up"
    cancellation.cancel(session, order.id, "changed my mind")
    assert reason(session, coupon) is None
