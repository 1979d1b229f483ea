from datetime import date, datetime, timezone
from decimal import Decimal

import pytest

from shop import cancellation, catalog, payments, purchasing, reporting, stock
from shop.reporting import Month, Seller, WarehouseValue


def at(month: int, day: int, hour: int = 12) -> datetime:
    return datetime(2024, month, day, hour, tzinfo=timezone.utc)


@pytest.fixture
def variant(make):
    return make.variant(price=1000, pieces=100)


def test_daily_revenue_fills_empty_days(session, make, variant):
    first = make.order((variant, 1), now=at(5, 1))
    second = make.order((variant, 2), now=at(5, 3))
    days = reporting.daily_revenue(session, date(2024, 5, 1), date(2024, 5, 4))
    assert [day.day.day for day in days] == [1, 2, 3, 4]
    assert [day.orders for day in days] == [1, 0, 1, 0]
    assert [day.revenue for day in days] == [first.total, 0, second.total, 0]
    both = first.total + second.total
    assert [day.running_total for day in days] == [first.total, first.total, both, both]


def test_daily_average_looks_back_three_days(session, make, variant):
    totals = [make.order((variant, n), now=at(5, n)).total for n in (1, 2, 3, 4)]
    days = reporting.daily_revenue(session, date(2024, 5, 1), date(2024, 5, 4))
    cent = Decimal("0.01")
    assert days[0].average == totals[0]
    assert days[1].average == Decimal(sum(totals[:2]) / 2).quantize(cent)
    assert days[3].average == (Decimal(sum(totals[1:])) / 3).quantize(cent)


def test_days_end_at_midnight_utc(session, make, variant):
    make.order((variant, 1), now=at(5, 1, 23))
    make.order((variant, 1), now=at(5, 2, 0))
    session.connection().exec_driver_sql("SET LOCAL timezone = 'Asia/Tokyo'")
    days = reporting.daily_revenue(session, date(2024, 5, 1), date(2024, 5, 2))
    assert [day.orders for day in days] == [1, 1]


def test_revenue_leaves_out_cancelled_orders_and_other_currencies(session, make, variant):
    order = make.order((variant, 1), now=at(5, 1))
    make.order((variant, 1), now=at(5, 1))
    cancellation.cancel(session, order.id, "?")
    [day] = reporting.daily_revenue(session, date(2024, 5, 1), date(2024, 5, 1))
    assert day.orders == 1
    [day] = reporting.daily_revenue(session, date(2024, 5, 1), date(2024, 5, 1), "GBP")
    assert (day.orders, day.revenue) == (0, 0)


def test_best_sellers_rank_within_categories(session, make):
    toys, books = (catalog.add_category(session, name) for name in ("Toys", "Books"))
    sold = {"Ball": (toys, 5), "Doll": (toys, 3), "Kite": (toys, 3), "Top": (toys, 1)}
    sold["Novel"] = (books, 2)
    items = [
        (make.variant(product=make.product(name, categories=[category])), pieces)
        for name, (category, pieces) in sold.items()
    ]
    make.order(*items)
    assert reporting.best_sellers(session, 2) == [
        Seller("Books", 1, "Novel", 2, Decimal("1.000")),
        Seller("Toys", 1, "Ball", 5, Decimal("0.417")),
        Seller("Toys", 2, "Doll", 3, Decimal("0.250")),
        Seller("Toys", 2, "Kite", 3, Decimal("0.250")),
    ]


def test_best_sellers_count_all_variants_of_a_product(session, make):
    toys = catalog.add_category(session, "Toys")
    ball = make.product("Ball", categories=[toys])
    make.order((make.variant(product=ball), 2), (make.variant(product=ball), 3))
    assert [(s.product, s.pieces) for s in reporting.best_sellers(session)] == [("Ball", 5)]


def test_customer_values_are_net_of_refunds(session, make, variant):
    ann, bob = make.customer("ann@example.com"), make.customer("bob@example.com")
    bought = make.paid_order((variant, 3), customer=ann)
    other = make.paid_order((variant, 2), customer=bob)
    payments.refund(session, bought.payments[0].id, 2000, "damage")
    values = reporting.customer_values(session)
    assert [(v.email, v.spent, v.half) for v in values] == [
        ("bob@example.com", other.total, 1),
        ("ann@example.com", bought.total - 2000, 2),
    ]


def test_customer_values_know_the_days_between_orders(session, make, variant):
    ann, bob = make.customer("ann@example.com"), make.customer("bob@example.com")
    for day in (1, 3, 10):
        make.paid_order((variant, 1), customer=ann, now=at(5, day))
    make.paid_order((variant, 1), customer=bob, now=at(5, 1))
    make.order((variant, 9), customer=bob, now=at(5, 2))  # never paid
    values = reporting.customer_values(session)
    assert [(v.email, v.orders, v.days_between) for v in values] == [
        ("ann@example.com", 3, Decimal("4.5")),
        ("bob@example.com", 1, None),
    ]


def test_monthly_growth(session, make, variant):
    january = make.order((variant, 1), now=at(1, 15)).total
    february = sum(make.order((variant, 1), now=at(2, day)).total for day in (1, 29))
    assert reporting.monthly_growth(session) == [
        Month(date(2024, 1, 1), january, None),
        Month(date(2024, 2, 1), february, Decimal("100.0")),
    ]
    assert reporting.monthly_growth(session, "GBP") == []


def test_stock_value_at_the_cheapest_cost(session, make):
    main, spare = make.warehouse("MAIN"), make.warehouse("SPARE")
    offered, own = make.variant(pieces=4), make.variant(pieces=2)
    for name, cost in (("Acme", 300), ("Other", 250)):
        purchasing.offer(session, make.supplier(name), offered, cost)
    assert own.id != offered.id
    assert reporting.stock_value(session) == [
        WarehouseValue("MAIN", 6, 1000),
        WarehouseValue("SPARE", 0, 0),
        WarehouseValue("total", 6, 1000),
    ]
    stock.transfer(session, offered.id, main.id, spare.id, 3)
    assert [row.value for row in reporting.stock_value(session)] == [250, 750, 1000]


def test_reports_of_an_empty_shop(session):
    assert reporting.best_sellers(session) == []
    assert reporting.customer_values(session) == []
    assert reporting.monthly_growth(session) == []
    assert reporting.stock_value(session) == [WarehouseValue("total", 0, 0)]
