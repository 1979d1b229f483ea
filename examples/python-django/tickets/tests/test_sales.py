from django.db import IntegrityError
from django.test import TestCase

from tickets import sales
from tickets.models import Discount, Event, Message, Order, Ticket

from .places import make_event


class Orders(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.event = make_event(seats=5)

    def test_seats_are_given_from_the_front(self):
        order = sales.place_order(self.event, "ann@example.com", 3)
        self.assertEqual([ticket.seat.number for ticket in order.tickets.all()], [1, 2, 3])
        self.assertEqual(order.total, 6000)

    def test_discounts_that_a_migration_has_made(self):
        order = sales.place_order(self.event, "ann@example.com", 2, "students")
        self.assertEqual(order.total, 2400)

    def test_unknown_discount(self):
        with self.assertRaises(Discount.DoesNotExist):
            sales.place_order(self.event, "ann@example.com", 1, "friends")
        self.assertFalse(Order.objects.exists())

    def test_what_is_sold_is_counted(self):
        sales.place_order(self.event, "ann@example.com", 2)
        sales.place_order(self.event, "bob@example.com", 1)
        self.event.refresh_from_db()
        self.assertEqual(self.event.sold, 3)

    def test_sold_out(self):
        sales.place_order(self.event, "ann@example.com", 4)
        with self.assertRaisesMessage(sales.SoldOut, "1 seats are left"):
            sales.place_order(self.event, "bob@example.com", 2)

    def test_cancelled_seats_are_sold_again(self):
        order = sales.place_order(self.event, "ann@example.com", 5)
        self.assertTrue(sales.cancel_order(order))
        again = sales.place_order(self.event, "bob@example.com", 5)
        self.assertEqual(Ticket.objects.filter(held=True).count(), 5)
        self.assertNotEqual(again.code, order.code)

    def test_cancelling_twice(self):
        order = sales.place_order(self.event, "ann@example.com", 1)
        self.assertTrue(sales.cancel_order(order))
        self.assertFalse(sales.cancel_order(order))
        self.assertEqual(Event.objects.get().sold, 0)

    def test_the_database_refuses_what_the_code_prevents(self):
        order = sales.place_order(self.event, "ann@example.com", 1)
        with self.assertRaisesMessage(IntegrityError, "a_seat_is_sold_once"):
            Ticket.objects.create(order=order, event=self.event, seat=order.tickets.get().seat)

    def test_listener_runs_once_after_commit(self):
        called = []
        with self.captureOnCommitCallbacks(execute=True):
            order = sales.place_order(self.event, "ann@example.com", 1, then=called.append)
            self.assertEqual(called, [])
        self.assertEqual(called, [order])

    def test_messages_are_sent_once(self):
        sent = []
        order = sales.place_order(self.event, "ann@example.com", 1)
        sales.cancel_order(order)
        self.assertEqual(sales.send_messages(lambda *message: sent.append(message)), 2)
        self.assertEqual(sales.send_messages(lambda *message: sent.append(message)), 0)
        self.assertEqual(sent[1], ("ann@example.com", f"{order.code} is cancelled"))
        self.assertFalse(Message.objects.filter(sent=None).exists())
