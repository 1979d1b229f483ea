"""Changes that the database itself refuses, even without the services."""

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from factories import diagnosis
from shop import payments
from shop.models import Cart, Category, Customer, Order, OrderLine, Stock

GENERATED_ALWAYS = "428C9"
IN_FAILED_TRANSACTION = "25P02"


def test_identity_cannot_be_chosen(session):
    with pytest.raises(ProgrammingError) as refusal:
        session.execute(
            text("INSERT INTO suppliers (id, name, country_code) VALUES (7, 'Acme', 'DE')")
        )
    assert diagnosis(refusal.value).sqlstate == GENERATED_ALWAYS


def test_identity_leaves_gaps_after_a_rollback(session, make):
    make.customer(address=False)
    session.add(Customer(email="lost@example.com", name="Lost", country_code="DE"))
    session.flush()
    session.rollback()
    assert make.customer(address=False).id == 3


def test_order_numbers_come_from_a_sequence_of_their_own(session, make):
    variant = make.variant()
    numbers = [make.order((variant, 1)).number for _ in range(3)]
    assert numbers == ["S00001000", "S00001001", "S00001002"]
    owned = session.scalar(select(func.pg_get_serial_sequence("orders", "number")))
    assert owned == "public.order_number_seq"


def test_generated_columns_cannot_be_written(session, make):
    make.order()
    with pytest.raises(ProgrammingError) as refusal:
        session.execute(text("UPDATE orders SET total = 1"))
    assert diagnosis(refusal.value).sqlstate == GENERATED_ALWAYS


def test_generated_columns_follow_their_sources(session, make):
    order = make.order((make.variant(price=1000), 3))
    session.execute(text("UPDATE orders SET shipping = shipping + 100"))
    session.execute(text("UPDATE order_lines SET discount = 500"))
    session.commit()
    assert order.total == order.subtotal + order.tax + order.shipping
    assert order.lines[0].net == 2500


def test_stock_cannot_promise_more_than_there_is(rejects, make):
    make.variant(pieces=5)
    rejects("stock_reserved_check", "UPDATE stock SET reserved = 6")
    rejects("stock_on_hand_check", "UPDATE stock SET on_hand = -1, reserved = -1")


def test_movements_need_a_stock_row(rejects, make):
    warehouse, variant = make.warehouse(), make.variant(pieces=0)
    rejects(
        "stock_movements_warehouse_id_variant_id_fkey",
        "INSERT INTO stock_movements (warehouse_id, variant_id, quantity, reason)"
        " VALUES (:warehouse, :variant, 1, 'receipt')",
        warehouse=warehouse.id,
        variant=variant.id,
    )


def test_open_mail_address_is_unique_without_case(rejects, make):
    make.customer("ann@example.com")
    rejects(
        "customers_email_open_key",
        "INSERT INTO customers (email, name, country_code) VALUES ('ANN@example.com', 'A', 'DE')",
    )


def test_customer_needs_a_known_country(rejects):
    rejects(
        "customers_country_code_fkey",
        "INSERT INTO customers (email, name, country_code) VALUES ('a@example.com', 'A', 'XX')",
    )


def test_one_open_cart_per_customer(session, make):
    customer = make.customer()
    session.add_all(Cart(customer_id=customer.id, currency_code="EUR") for _ in range(2))
    with pytest.raises(IntegrityError, match="carts_open_customer_key"):
        session.flush()


def test_guests_may_have_many_open_carts(session):
    session.add_all(Cart(currency_code="EUR") for _ in range(3))
    session.commit()
    tokens = session.scalars(select(Cart.token)).all()
    assert len(set(tokens)) == 3


def test_one_current_price_per_currency(rejects, make):
    variant = make.variant(price=1000)
    rejects(
        "prices_current_key",
        "INSERT INTO prices (variant_id, currency_code, amount) VALUES (:variant, 'EUR', 900)",
        variant=variant.id,
    )


def test_percent_coupon_stops_at_hundred(rejects):
    insert = "INSERT INTO coupons (code, kind, value, starts_at) VALUES (:code, :kind, 101, now())"
    rejects("coupons_value_check", insert, code="P", kind="percent")
    rejects("coupons_code_check", insert, code="lower", kind="amount")


def test_enum_refuses_unknown_values(session, make):
    make.order()
    with pytest.raises(DataError, match="order_status"):
        session.execute(text("UPDATE orders SET status = 'lost'"))


def test_order_without_lines_fails_at_commit(session, make):
    customer = make.customer()
    order = Order(
        customer_id=customer.id,
        address_id=customer.default_address_id,
        currency_code="EUR",
        subtotal=0,
    )
    session.add(order)
    session.flush()
    with pytest.raises(IntegrityError, match="has no lines"):
        session.commit()
    session.rollback()
    assert session.scalar(select(func.count()).select_from(Order)) == 0


def test_deferred_check_can_be_made_immediate(session, make):
    customer = make.customer()
    session.execute(text("SET CONSTRAINTS orders_have_lines IMMEDIATE"))
    session.add(
        Order(
            customer_id=customer.id,
            address_id=customer.default_address_id,
            currency_code="EUR",
            subtotal=0,
        )
    )
    with pytest.raises(IntegrityError, match="has no lines"):
        session.flush()


def test_default_address_is_checked_at_commit_only(session, make):
    customer = make.customer(address=False)
    customer.default_address_id = 1
    session.flush()  # the address doesn't exist yet
    make.address(customer)
    assert customer.default_address_id == customer.addresses[0].id == 1


def test_missing_default_address_fails_at_commit(rejects, make):
    make.customer(address=False)
    rejects("customers_default_address_id_fkey", "UPDATE customers SET default_address_id = 99")


def test_sibling_positions_are_compared_at_commit(session):
    root = Category(name="Root", slug="root", position=1)
    session.add(root)
    session.flush()
    session.add_all(
        Category(name=name, slug=name, parent_id=root.id, position=position)
        for position, name in enumerate(("a", "b"), start=1)
    )
    session.commit()
    session.execute(text("UPDATE categories SET position = 2 WHERE slug = 'a'"))
    session.execute(text("UPDATE categories SET position = 1 WHERE slug = 'b'"))
    session.commit()
    session.execute(text("UPDATE categories SET position = 1 WHERE slug = 'a'"))
    with pytest.raises(IntegrityError, match="categories_parent_id_position_key"):
        session.commit()


def test_refund_trigger_guards_against_direct_inserts(rejects, make):
    order = make.order()
    payment = make.payment(order)
    insert = "INSERT INTO refunds (payment_id, amount, reason) VALUES (:payment, :amount, 'test')"
    rejects("refunds_within_payment", insert, payment=payment.id, amount=payment.amount + 1)


def test_refund_trigger_counts_earlier_refunds(session, rejects, make):
    payment = make.payment(make.order())
    refund = payments.refund(session, payment.id, payment.amount - 1, "most of it")
    refund.amount += 1  # a changed refund doesn't count twice
    session.commit()
    rejects("refunds_within_payment", "UPDATE refunds SET amount = amount + 1")
    rejects(
        "refunds_within_payment",
        "INSERT INTO refunds (payment_id, amount, reason) VALUES (:payment, 1, 'test')",
        payment=payment.id,
    )


def test_captured_payment_has_a_time(rejects, make):
    make.payment(make.order())
    rejects("payments_captured_at_check", "UPDATE payments SET captured_at = NULL")


def test_used_variants_cannot_be_deleted(rejects, make):
    make.variant()
    rejects("stock_variant_id_fkey", "DELETE FROM variants")


def test_deleting_a_customer_takes_addresses_and_carts_along(session, make):
    customer = make.customer()
    make.cart(customer, (make.variant(), 2))
    session.execute(text("DELETE FROM customers"))
    session.commit()
    for table in ("addresses", "carts", "cart_items"):
        assert session.scalar(text(f"SELECT count(*) FROM {table}")) == 0


def test_buyers_cannot_be_deleted(rejects, make):
    make.order()
    rejects("orders_customer_id_fkey", "DELETE FROM customers")


def test_failed_statement_spoils_the_transaction_until_rollback(session, make):
    make.variant()
    with pytest.raises(DBAPIError):
        session.execute(text("SELECT 1 / 0"))
    with pytest.raises(DBAPIError) as refusal:
        session.execute(select(Stock))
    assert diagnosis(refusal.value).sqlstate == IN_FAILED_TRANSACTION
    session.rollback()
    assert session.scalars(select(Stock.on_hand)).one() == 10


def test_savepoint_keeps_the_rest(session, make):
    make.order()
    line = session.scalars(select(OrderLine)).one()
    line.description = "kept"
    with pytest.raises(IntegrityError), session.begin_nested():
        session.execute(text("UPDATE order_lines SET quantity = 0"))
    session.commit()
    assert (line.description, line.quantity) == ("kept", 1)
