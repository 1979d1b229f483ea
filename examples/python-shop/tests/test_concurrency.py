"""Concurrent sessions: locks, races, isolation."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from factories import diagnosis
from shop import carts, checkout, coupons, customers, invoicing, outbox, payments, stock
from shop.errors import CartClosed, CouponRejected, EmailTaken, OutOfStock, RefundTooLarge
from shop.models import Address, Cart, CouponUse, Invoice, Order, Payment, Refund, Stock, Variant

LOCK_NOT_AVAILABLE = "55P03"
SERIALIZATION_FAILURE = "40001"


def race(
    new_session: sessionmaker[Session], workers: int, job: Callable[[Session, int], object]
) -> Counter[str]:
    """Run `job` in concurrent sessions, and count results and errors by type."""
    start = Barrier(workers)

    def run(number: int) -> str:
        with new_session() as session:
            start.wait(timeout=30)
            try:
                job(session, number)
            except Exception as error:
                return type(error).__name__
            return "done"

    with ThreadPoolExecutor(workers) as pool:
        return Counter(pool.map(run, range(workers)))


@pytest.fixture
def impatient(engine, new_session):
    """A second session, which fails at a lock instead of waiting."""
    with engine.connect() as connection:
        connection.execute(text("SET lock_timeout = '50ms'"))
        connection.commit()
        with new_session(bind=connection) as other:
            yield other
        connection.invalidate()  # the setting must not come back from the pool


def test_last_pieces_are_sold_once(session, make, new_session):
    variant = make.variant(pieces=3)
    buyers = [make.customer() for _ in range(6)]
    ids = [(make.cart(buyer, (variant, 1)).id, buyer.default_address_id) for buyer in buyers]

    def buy(other: Session, number: int) -> None:
        cart_id, address_id = ids[number]
        checkout.place_order(
            other, other.get_one(Cart, cart_id), other.get_one(Address, address_id)
        )

    assert race(new_session, 6, buy) == {"done": 3, OutOfStock.__name__: 3}
    assert stock.available(session, variant.id) == 0
    assert session.scalar(select(func.count()).select_from(Order)) == 3


def test_opposite_carts_do_not_deadlock(session, make, new_session):
    one, two = make.variant(pieces=50), make.variant(pieces=50)
    ids = []
    for number in range(6):
        buyer = make.customer()
        items = [(one, 1), (two, 1)] if number % 2 else [(two, 1), (one, 1)]
        ids.append((make.cart(buyer, *items).id, buyer.default_address_id))

    def buy(other: Session, number: int) -> None:
        cart_id, address_id = ids[number]
        checkout.place_order(
            other, other.get_one(Cart, cart_id), other.get_one(Address, address_id)
        )

    assert race(new_session, 6, buy) == {"done": 6}
    assert session.scalars(select(Stock.reserved)).all() == [6, 6]


def test_a_double_click_orders_once(session, make, new_session):
    customer = make.customer()
    cart_id = make.cart(customer, (make.variant(), 2)).id
    address_id = customer.default_address_id

    def buy(other: Session, number: int) -> None:
        checkout.place_order(
            other, other.get_one(Cart, cart_id), other.get_one(Address, address_id)
        )

    assert race(new_session, 3, buy) == {"done": 1, CartClosed.__name__: 2}
    assert session.scalars(select(Stock.reserved)).one() == 2


def test_last_use_of_a_coupon(session, make, new_session):
    coupon = make.coupon("LAST", max_uses=1)
    variant = make.variant(pieces=10)
    ids = []
    for _ in range(4):
        buyer = make.customer()
        cart = make.cart(buyer, (variant, 1))
        carts.apply_coupon(session, cart, "LAST")
        ids.append((cart.id, buyer.default_address_id))

    def buy(other: Session, number: int) -> None:
        cart_id, address_id = ids[number]
        checkout.place_order(
            other, other.get_one(Cart, cart_id), other.get_one(Address, address_id)
        )

    assert race(new_session, 4, buy) == {"done": 1, CouponRejected.__name__: 3}
    assert coupons.uses(session, coupon) == 1
    assert session.scalar(select(func.count()).select_from(CouponUse)) == 1


def test_same_key_captures_once(session, make, new_session, gateway):
    order = make.order()
    order_id, total = order.id, order.total

    def pay(other: Session, number: int) -> None:
        payments.capture(other, other.get_one(Order, order_id), total, "k1", gateway)

    assert race(new_session, 4, pay) == {"done": 4}
    assert gateway.charges == {"k1": total}
    session.expire_all()
    assert session.scalars(select(Payment.amount)).all() == [total]
    assert payments.captured(session, order) == total


def test_refunds_at_once_stay_within_the_payment(session, make, new_session):
    payment = make.payment(make.order())
    payment_id, amount = payment.id, payment.amount

    def give_back(other: Session, number: int) -> None:
        payments.refund(other, payment_id, amount // 2, "half")

    assert race(new_session, 4, give_back) == {"done": 2, RefundTooLarge.__name__: 2}
    assert session.scalar(select(func.sum(Refund.amount))) == amount // 2 * 2


def test_invoice_numbers_have_no_gaps(session, make, new_session):
    variant = make.variant(pieces=10)
    ids = [make.paid_order((variant, 1)).id for _ in range(5)]

    def issue(other: Session, number: int) -> None:
        invoicing.issue(other, other.get_one(Order, ids[number]))

    assert race(new_session, 5, issue) == {"done": 5}
    numbers = session.scalars(select(Invoice.number).order_by(Invoice.number)).all()
    assert numbers == [1, 2, 3, 4, 5]


def test_one_account_per_mail_address(new_session):
    def register(other: Session, number: int) -> None:
        customers.register(other, "ann@example.com", f"Ann {number}", country="DE")

    assert race(new_session, 4, register) == {"done": 1, EmailTaken.__name__: 3}


def test_pieces_added_at_once_all_count(session, make, new_session):
    variant_id, cart_id = make.variant().id, make.cart().id

    def add(other: Session, number: int) -> None:
        carts.add(other, other.get_one(Cart, cart_id), other.get_one(Variant, variant_id))

    assert race(new_session, 5, add) == {"done": 5}
    assert carts.totals(session, session.get_one(Cart, cart_id)).pieces == 5


def test_reserved_row_is_locked_until_the_end(session, make, impatient):
    variant = make.variant(pieces=5)
    stock.locked(session, 1, variant.id)
    with pytest.raises(OperationalError) as refusal:
        stock.reserve(impatient, variant.id, 1)
    assert diagnosis(refusal.value).sqlstate == LOCK_NOT_AVAILABLE
    session.rollback()
    assert stock.reserve(impatient, variant.id, 1)[0].quantity == 1


def test_other_variants_are_not_locked(session, make, impatient):
    held, free = make.variant(pieces=5), make.variant(pieces=5)
    stock.locked(session, 1, held.id)
    assert stock.reserve(impatient, free.id, 2)[0].quantity == 2


def test_outbox_workers_share_the_work(session, impatient):
    for number in range(4):
        outbox.emit(session, f"event {number}", {})
        session.flush()
    session.commit()
    seen: list[str] = []

    def handler(topic: str, payload: dict) -> None:
        seen.append(topic)
        if topic == "event 0":  # the first worker still holds its two rows
            outbox.deliver(impatient, lambda topic, payload: seen.append(topic))

    assert outbox.deliver(session, handler, limit=2) == 2
    assert seen == ["event 0", "event 2", "event 3", "event 1"]
    assert outbox.pending(session) == 0


def test_uncommitted_changes_are_invisible(session, make, new_session):
    variant = make.variant(pieces=5)
    session.execute(text("UPDATE stock SET on_hand = 99"))
    with new_session() as other:
        assert stock.available(other, variant.id) == 5
        session.commit()
        assert stock.available(other, variant.id) == 99


def test_repeatable_read_keeps_its_snapshot(session, make, new_session):
    variant = make.variant(pieces=5)
    with new_session() as other:
        other.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        assert stock.available(other, variant.id) == 5
        stock.receive(session, 1, variant.id, 1)
        assert stock.available(other, variant.id) == 5
        with pytest.raises(OperationalError) as refusal:
            stock.receive(other, 1, variant.id, 1)
        assert diagnosis(refusal.value).sqlstate == SERIALIZATION_FAILURE
    assert stock.available(session, variant.id) == 6
