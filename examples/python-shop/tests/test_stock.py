import pytest
from sqlalchemy import func, select

from shop import stock
from shop.errors import InvalidQuantity, NotFound, OutOfStock
from shop.models import MovementReason, Stock, StockMovement
from shop.stock import Allocation


@pytest.fixture
def near(make):
    return make.warehouse("NEAR", priority=1)


@pytest.fixture
def far(make):
    return make.warehouse("FAR", priority=2)


@pytest.fixture
def variant(make):
    return make.variant(pieces=0)


def levels(session, variant):
    rows = session.execute(
        select(Stock.on_hand, Stock.reserved)
        .where(Stock.variant_id == variant.id)
        .order_by(Stock.warehouse_id)
    )
    return [tuple(row) for row in rows]


def test_receipts_add_up(session, near, variant):
    stock.receive(session, near.id, variant.id, 5)
    stock.receive(session, near.id, variant.id, 3, reference="PO 1")
    assert levels(session, variant) == [(8, 0)]
    movements = session.scalars(select(StockMovement).order_by(StockMovement.id)).all()
    assert [(m.quantity, m.reference) for m in movements] == [(5, None), (3, "PO 1")]


@pytest.mark.parametrize("quantity", [0, -3])
def test_receipt_needs_a_quantity(session, near, variant, quantity):
    with pytest.raises(InvalidQuantity):
        stock.receive(session, near.id, variant.id, quantity)


def test_reservation_prefers_the_first_warehouse(session, near, far, variant):
    stock.receive(session, far.id, variant.id, 10)
    stock.receive(session, near.id, variant.id, 4)
    assert stock.reserve(session, variant.id, 3) == [Allocation(near.id, 3)]
    assert stock.reserve(session, variant.id, 5) == [
        Allocation(near.id, 1),
        Allocation(far.id, 4),
    ]
    assert levels(session, variant) == [(4, 4), (10, 4)]
    assert stock.available(session, variant.id) == 6


def test_reservation_is_all_or_nothing(session, near, far, variant):
    stock.receive(session, near.id, variant.id, 2)
    stock.receive(session, far.id, variant.id, 2)
    with pytest.raises(OutOfStock) as refusal:
        stock.reserve(session, variant.id, 5)
    assert (refusal.value.wanted, refusal.value.available) == (5, 4)
    assert levels(session, variant) == [(2, 0), (2, 0)]


def test_nothing_to_reserve_of_unknown_stock(session, variant):
    with pytest.raises(OutOfStock):
        stock.reserve(session, variant.id, 1)
    assert stock.available(session, variant.id) == 0


def test_release_takes_back(session, near, variant):
    stock.receive(session, near.id, variant.id, 5)
    stock.reserve(session, variant.id, 4)
    stock.release(session, near.id, variant.id, 3)
    assert levels(session, variant) == [(5, 1)]
    with pytest.raises(InvalidQuantity):
        stock.release(session, near.id, variant.id, 2)


def test_dispatch_takes_promised_goods_only(session, near, variant):
    stock.receive(session, near.id, variant.id, 5)
    stock.reserve(session, variant.id, 2)
    with pytest.raises(InvalidQuantity):
        stock.dispatch(session, near.id, variant.id, 3, "S1")
    stock.dispatch(session, near.id, variant.id, 2, "S1")
    assert levels(session, variant) == [(3, 0)]


def test_transfer_moves_free_goods(session, near, far, variant):
    stock.receive(session, near.id, variant.id, 5)
    stock.reserve(session, variant.id, 2)
    stock.transfer(session, variant.id, near.id, far.id, 3)
    assert levels(session, variant) == [(2, 2), (3, 0)]
    with pytest.raises(OutOfStock):
        stock.transfer(session, variant.id, near.id, far.id, 1)
    with pytest.raises(InvalidQuantity):
        stock.transfer(session, variant.id, far.id, far.id, 1)


def test_transfer_leaves_the_sum_of_movements(session, near, far, variant):
    stock.receive(session, near.id, variant.id, 5)
    stock.transfer(session, variant.id, near.id, far.id, 2)
    moved = session.scalar(
        select(func.sum(StockMovement.quantity)).where(
            StockMovement.reason == MovementReason.TRANSFER
        )
    )
    assert moved == 0


def test_stocktaking_records_the_difference(session, near, variant):
    stock.receive(session, near.id, variant.id, 5)
    assert stock.correct(session, near.id, variant.id, 3) == -2
    assert stock.correct(session, near.id, variant.id, 3) == 0
    assert levels(session, variant) == [(3, 0)]
    corrections = select(StockMovement.quantity).where(
        StockMovement.reason == MovementReason.CORRECTION
    )
    assert session.scalars(corrections).all() == [-2]


def test_stocktaking_cannot_lose_promised_goods(session, near, variant):
    stock.receive(session, near.id, variant.id, 5)
    stock.reserve(session, variant.id, 4)
    with pytest.raises(InvalidQuantity):
        stock.correct(session, near.id, variant.id, 3)


def test_stocktaking_of_unknown_stock(session, near, variant):
    with pytest.raises(NotFound):
        stock.correct(session, near.id, variant.id, 3)


def test_movements_explain_the_stock(session, near, far, variant, make):
    stock.receive(session, near.id, variant.id, 9)
    stock.transfer(session, variant.id, near.id, far.id, 4)
    stock.correct(session, far.id, variant.id, 3)
    stock.reserve(session, variant.id, 2)
    stock.dispatch(session, near.id, variant.id, 2, "S1")
    explained = session.execute(
        select(StockMovement.warehouse_id, func.sum(StockMovement.quantity))
        .group_by(StockMovement.warehouse_id)
        .order_by(StockMovement.warehouse_id)
    ).all()
    on_hand = session.execute(
        select(Stock.warehouse_id, Stock.on_hand).order_by(Stock.warehouse_id)
    ).all()
    assert explained == on_hand == [(near.id, 3), (far.id, 3)]


def test_low_stock_lists_the_scarcest_first(session, make):
    make.variant("PLENTY", pieces=50)
    make.variant("SOME", pieces=3)
    make.variant("NONE", pieces=0)
    make.variant("GONE", pieces=0).active = False
    session.commit()
    assert stock.low(session, 5) == [("NONE", 0), ("SOME", 3)]
