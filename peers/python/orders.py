import pytest


@pytest.mark.parametrize("number", range(30))
def test_the_first_order_is_number_1(connection, number):
    customer = connection.execute(
        "INSERT INTO customers (name, email) VALUES ('Ada', 'ada@example.org') RETURNING id"
    ).fetchone()[0]
    connection.execute("INSERT INTO orders (customer, cents) VALUES (%s, %s)", (customer, number))
    connection.commit()
    assert connection.execute("SELECT id, cents FROM orders").fetchall() == [(1, number)]
