"""The shop with five bugs. Each bug appears only while the database misbehaves."""

import logging
import time
from uuid import uuid4

import psycopg
from psycopg_pool import ConnectionPool

from retry import retry


class Shop:
    def __init__(self, url: str) -> None:
        self.url = url
        self.pool = ConnectionPool(url, min_size=1, max_size=2, open=True)
        self.idle: list[psycopg.Connection] = []

    def close(self) -> None:
        self.pool.close()
        for connection in self.idle:
            connection.close()

    def pay(self, customer: str, cents: int) -> str:
        """Store a payment."""

        def work(connection: psycopg.Connection) -> None:
            # Bug: each attempt uses a new id, so a second attempt duplicates a committed payment.
            payment = uuid4()
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
            # Bug: if the message fails after this, the next attempt finds the order and doesn't
            # send the message.
            connection.commit()
            if placed.rowcount:
                connection.execute("INSERT INTO outbox VALUES (%s)", (f"pack {customer}",))

        retry(self.pool, work)
        return f"{customer}: we have your order"

    def ship(self, customer: str) -> str:
        """Mark an order as shipped."""
        # Bug: the customer learns that the order has shipped although the database didn't store it.
        try:
            with self.pool.connection() as connection:
                connection.execute(
                    "UPDATE orders SET state = 'shipped' WHERE customer = %s", (customer,)
                )
        except psycopg.Error:
            logging.exception("cannot ship %s", customer)
        return f"{customer}: on its way"

    def wait_until_paid(self, customer: str) -> str:
        """Wait for the payment of an order."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            while True:
                # Bug: a lost connection doesn't recover, so this loop never ends.
                try:
                    found = connection.execute(
                        "SELECT FROM payments WHERE customer = %s", (customer,)
                    )
                    if found.rowcount:
                        return f"{customer}: paid"
                except psycopg.OperationalError:
                    logging.exception("cannot look for the payment of %s", customer)
                time.sleep(0.1)

    def set_price(self, item: str, cents: int) -> int:
        """Change a price."""
        attempt = 1
        while True:
            connection = self.idle.pop() if self.idle else psycopg.connect(self.url)
            try:
                with connection.transaction():
                    connection.execute(
                        "UPDATE prices SET cents = %s WHERE item = %s", (cents, item)
                    )
                return cents
            except psycopg.OperationalError:
                if attempt == 3:
                    raise
            finally:
                # Bug: a lost connection returns to the idle ones, and the next attempt gets it.
                self.idle.append(connection)
            attempt += 1
