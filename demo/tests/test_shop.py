"""Short tests of the shop's schema. Each needs a clean database: most count rows, or expect the first number of a sequence."""

import psycopg
import pytest


def customer(db, email="ada@example.com"):
    return db.execute(
        "INSERT INTO customers (email, name, country_code) VALUES (%s, 'Ada', 'DE') RETURNING id", [email]
    ).fetchone()[0]


def product(db, slug="sofa"):
    return db.execute(
        "INSERT INTO products (name, slug, tax_category) VALUES (%s, %s, 'standard') RETURNING id", [slug.title(), slug]
    ).fetchone()[0]


def variant(db, sku="SOFA-1", price=1000):
    found = db.execute(
        "INSERT INTO variants (product_id, sku) VALUES (%s, %s) RETURNING id", [product(db, sku.lower()), sku]
    ).fetchone()[0]
    db.execute("INSERT INTO prices (variant_id, currency_code, amount) VALUES (%s, 'EUR', %s)", [found, price])
    return found


def cart(db):
    return db.execute(
        "INSERT INTO carts (customer_id, currency_code) VALUES (%s, 'EUR') RETURNING id", [customer(db)]
    ).fetchone()[0]


def warehouse(db, code="BER"):
    return db.execute(
        "INSERT INTO warehouses (code, name, country_code) VALUES (%s, 'Berlin', 'DE') RETURNING id", [code]
    ).fetchone()[0]


def coupon(db, code="SPRING", value=10):
    return db.execute(
        "INSERT INTO coupons (code, kind, value, starts_at) VALUES (%s, 'percent', %s, now()) RETURNING id",
        [code, value],
    ).fetchone()[0]


def count(db, table):
    return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_shop_begins_without_customers(db):
    assert count(db, "customers") == 0


def test_customer_is_stored(db):
    customer(db)
    assert db.execute("SELECT name FROM customers").fetchall() == [("Ada",)]


def test_address_of_an_account_is_unique(db):
    customer(db)
    with pytest.raises(psycopg.errors.UniqueViolation):
        customer(db, "ADA@example.com")


def test_closed_account_frees_its_address(db):
    db.execute("UPDATE customers SET closed_at = now() WHERE id = %s", [customer(db)])
    customer(db)
    assert count(db, "customers") == 2


def test_address_without_at_is_refused(db):
    with pytest.raises(psycopg.errors.CheckViolation):
        customer(db, "ada")


def test_product_is_found_by_its_name(db):
    product(db)
    assert db.execute("SELECT slug FROM products WHERE search @@ to_tsquery('sofa')").fetchall() == [("sofa",)]


def test_price_is_in_force(db):
    variant(db, price=4900)
    assert db.execute("SELECT amount FROM prices WHERE valid_to IS NULL").fetchall() == [(4900,)]


def test_variants_end_with_their_product(db):
    variant(db)
    db.execute("DELETE FROM products")
    assert count(db, "variants") == count(db, "prices") == 0


def test_price_leaves_a_trail(db):
    variant(db)
    assert db.execute("SELECT action FROM audit_log WHERE table_name = 'prices'").fetchall() == [("insert",)]


def test_cart_holds_variants(db):
    basket, sofa = cart(db), variant(db)
    db.execute("INSERT INTO cart_items (cart_id, variant_id, quantity) VALUES (%s, %s, 2)", [basket, sofa])
    assert (
        db.execute("SELECT sum(quantity * amount) FROM cart_items JOIN prices USING (variant_id)").fetchone()[0] == 2000
    )


def test_carts_end_with_their_customer(db):
    cart(db)
    db.execute("DELETE FROM customers")
    assert count(db, "carts") == 0


def test_coupon_is_unique(db):
    coupon(db)
    with pytest.raises(psycopg.errors.UniqueViolation):
        coupon(db)


def test_coupon_gives_at_most_everything(db):
    with pytest.raises(psycopg.errors.CheckViolation):
        coupon(db, value=101)


def test_stock_is_counted_by_warehouse(db):
    sofa = variant(db)
    for place in (warehouse(db, "BER"), warehouse(db, "HAM")):
        db.execute("INSERT INTO stock (warehouse_id, variant_id, on_hand) VALUES (%s, %s, 5)", [place, sofa])
    assert db.execute("SELECT sum(on_hand) FROM stock").fetchone()[0] == 10


def test_stock_is_never_negative(db):
    place, sofa = warehouse(db), variant(db)
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("INSERT INTO stock (warehouse_id, variant_id, on_hand) VALUES (%s, %s, -1)", [place, sofa])


def test_countries_are_there(db):
    assert count(db, "countries") > 0
