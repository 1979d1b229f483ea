"""Concurrent sessions. Their commits stay until pgfresh resets the database."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from django.db import connection
from django.test import TransactionTestCase, tag

from tickets import sales
from tickets.models import Discount, Event, Message, Order

from .places import make_event


def race(workers, job):
    """Runs `job` in `workers` concurrent sessions, and counts the results."""
    start = Barrier(workers)

    def run(number):
        try:
            start.wait(timeout=30)
            job(number)
        except Exception as error:
            return type(error).__name__
        finally:
            connection.close()
        return "done"

    with ThreadPoolExecutor(workers) as pool:
        return Counter(pool.map(run, range(workers)))


class Races(TransactionTestCase):
    def test_the_last_seats_are_sold_once(self):
        event = make_event(seats=3)
        ended = race(6, lambda number: sales.place_order(event, f"{number}@example.com", 1))
        self.assertEqual(ended, {"done": 3, "SoldOut": 3})
        self.assertEqual(Event.objects.get().sold, 3)

    def test_all_or_nothing(self):
        event = make_event(seats=5)
        ended = race(4, lambda number: sales.place_order(event, f"{number}@example.com", 2))
        self.assertEqual(ended, {"done": 2, "SoldOut": 2})

    def test_one_cancellation_counts(self):
        event = make_event()
        order = sales.place_order(event, "ann@example.com", 2)
        self.assertEqual(race(4, lambda number: sales.cancel_order(order)), {"done": 4})
        self.assertEqual(Message.objects.filter(text__contains="cancelled").count(), 1)

    def test_messages_are_shared_out(self):
        event = make_event()
        for number in range(6):
            sales.place_order(event, f"{number}@example.com", 1)
        sent = []
        race(3, lambda number: sales.send_messages(lambda to, text: sent.append(to), limit=2))
        while sales.send_messages(lambda to, text: sent.append(to)):
            pass
        self.assertEqual(sorted(sent), [f"{number}@example.com" for number in range(6)])


@tag("fresh")
class Freshness(TransactionTestCase):
    """Whatever a test commits, the next test starts with the data that the migrations created.

    This requires pgfresh's engine. Django itself empties all tables, so two of these tests fail.
    """

    def check_and_spoil(self):
        self.assertFalse(Order.objects.exists())
        self.assertEqual(Discount.objects.count(), 3)
        sales.place_order(make_event(), "ann@example.com", 1, "students")
        Order.objects.all().delete()
        Discount.objects.all().delete()

    def test_one(self):
        self.check_and_spoil()

    def test_another(self):
        self.check_and_spoil()

    def test_and_another(self):
        self.check_and_spoil()
