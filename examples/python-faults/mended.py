"""A shop that keeps its promises while the database misbehaves."""

import time
from uuid import uuid4

import psycopg
from psycopg_pool import ConnectionPool

from retry import retry


class Shop:
    def __init__(self, url: str) -> None:
        self.pool = ConnectionPool(url, min_size=1, max_size=2, open=True)

    def close(self) -> None:
        self.pool.close()

    def pay(self, customer: str, cents: int) -> str:
        """Store a payment."""
        payment = uuid4()

        def work(connection: psycopg.Connection) -> None:
            # The first attempt may have been committed although its connection was lost.
            connection.execute(
                "INSERT INTO payments VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (payment, customer, cents),
            )

        retry(self.pool, work)
        return f"{customer}: thank you"

    def place(self, customer: str, item: str) -> str:
        """Store an order, and its message to the warehouse."""

        def work(connection: psycopg.Connection) -> None:
            placed = connection.execute(
                "INSERT INTO orders VALUES (%s, %s) ON CONFLICT DO NOTHING", (customer, item)
            )
            if placed.rowcount:
                connection.execute("INSERT INTO outbox VALUES (%s)", (f"pack {customer}",))

        retry(self.pool, work)
        return f"{customer}: we have your order"

    def ship(self, customer: str) -> str:
        """Mark an order as shipped."""

        def work(connection: psycopg.Connection) -> None:
            connection.execute(
                "UPDATE orders SET state = 'shipped' WHERE customer = %s", (customer,)
            )

        retry(self.pool, work)
        return f"{customer}: on its way"

    def wait_until_paid(self, customer: str, seconds: float = 10) -> str:
        """Wait for the payment of an order."""

        def paid(connection: psycopg.Connection) -> bool:
            found = connection.execute("SELECT FROM payments WHERE customer = %s", (customer,))
            return bool(found.rowcount)

        end = time.monotonic() + seconds
        while not retry(self.pool, paid):
            if time.monotonic() > end:
                raise TimeoutError(customer)
            time.sleep(0.1)
        return f"{customer}: paid"

    def set_price(self, item: str, cents: int) -> int:
        """Change a price."""

        def work(connection: psycopg.Connection) -> None:
            connection.execute("UPDATE prices SET cents = %s WHERE item = %s", (cents, item))

        retry(self.pool, work)
        return cents
