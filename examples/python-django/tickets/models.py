"""Venues have seats, events sell them, an order holds tickets for some."""

import secrets

from django.db import models
from django.db.models import F, Q


class Venue(models.Model):
    name = models.CharField(max_length=200, unique=True)


class Seat(models.Model):
    venue = models.ForeignKey(Venue, models.CASCADE, related_name="seats")
    row = models.CharField(max_length=3)
    number = models.PositiveSmallIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint("venue", "row", "number", name="one_seat")]
        ordering = ["row", "number"]


class Discount(models.Model):
    """A discount for a group of people. A migration creates the usual discounts."""

    name = models.CharField(max_length=50, unique=True)
    percent = models.PositiveSmallIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(percent__range=(0, 100)), name="percent_is_a_share")
        ]


class Event(models.Model):
    venue = models.ForeignKey(Venue, models.PROTECT, related_name="events")
    title = models.CharField(max_length=200)
    starts = models.DateTimeField()
    price = models.PositiveIntegerField(help_text="in cents")
    sold = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint("venue", "starts", name="one_event_at_a_time"),
        ]
        ordering = ["starts"]


def new_code() -> str:
    return secrets.token_hex(5)


class Order(models.Model):
    class State(models.TextChoices):
        PLACED = "placed"
        CANCELLED = "cancelled"

    event = models.ForeignKey(Event, models.PROTECT, related_name="orders")
    code = models.CharField(max_length=10, unique=True, default=new_code)
    email = models.EmailField()
    discount = models.ForeignKey(Discount, models.PROTECT, null=True)
    total = models.PositiveIntegerField(help_text="in cents")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PLACED)
    placed = models.DateTimeField(auto_now_add=True)


class Ticket(models.Model):
    """A seat that an order holds. Tickets of a canceled order don't hold a seat."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="tickets")
    event = models.ForeignKey(Event, models.PROTECT, related_name="tickets")
    seat = models.ForeignKey(Seat, models.PROTECT, related_name="tickets")
    held = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["event", "seat"], condition=Q(held=True), name="a_seat_is_sold_once"
            )
        ]


class Message(models.Model):
    """A message to a customer, stored in the transaction that it reports."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="messages")
    text = models.TextField()
    sent = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(F("id"), condition=Q(sent=None), name="unsent_messages")]
