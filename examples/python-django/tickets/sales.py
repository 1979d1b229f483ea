"""Sells tickets and takes them back. Each function runs one transaction."""

from collections.abc import Callable, Sequence

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from .models import Discount, Event, Message, Order, Seat, Ticket


class SoldOut(Exception):
    """Raised if there aren't enough free seats."""


@transaction.atomic
def place_order(
    event: Event,
    email: str,
    count: int,
    discount: str | None = None,
    then: Callable[[Order], None] = lambda order: None,
) -> Order:
    """Sells the first free seats. Calls `then` with the order once it is committed."""
    seats = free_seats(event, count)
    reduction = Discount.objects.get(name=discount) if discount else None
    full_price = event.price * count
    order = Order.objects.create(
        event=event,
        email=email,
        discount=reduction,
        total=full_price * (100 - (reduction.percent if reduction else 0)) // 100,
    )
    Ticket.objects.bulk_create(Ticket(order=order, event=event, seat=seat) for seat in seats)
    Event.objects.filter(pk=event.pk).update(sold=F("sold") + count)
    Message.objects.create(order=order, text=f"{count} tickets for {event.title}: {order.code}")
    transaction.on_commit(lambda: then(order))
    return order


def free_seats(event: Event, count: int) -> Sequence[Seat]:
    """Locks and returns free seats. Other sales for the same event wait for this transaction."""
    Event.objects.select_for_update().get(pk=event.pk)
    held = Ticket.objects.filter(event=event, held=True).values("seat")
    seats = list(Seat.objects.filter(venue=event.venue_id).exclude(pk__in=held)[:count])
    if len(seats) < count:
        raise SoldOut(f"{len(seats)} seats are left")
    return seats


@transaction.atomic
def cancel_order(order: Order) -> bool:
    """Frees the seats. Returns false if the order is already canceled."""
    order = Order.objects.select_for_update().get(pk=order.pk)
    if order.state == Order.State.CANCELLED:
        return False
    order.state = Order.State.CANCELLED
    order.save(update_fields=["state"])
    count = order.tickets.update(held=False)
    Event.objects.filter(pk=order.event_id).update(sold=F("sold") - count)
    Message.objects.create(order=order, text=f"{order.code} is cancelled")
    return True


@transaction.atomic
def send_messages(send: Callable[[str, str], None], limit: int = 100) -> int:
    """Sends messages that nobody else is sending at the moment. Returns their number."""
    waiting = Message.objects.filter(sent=None).select_related("order").order_by("pk")
    messages = list(waiting.select_for_update(skip_locked=True, of=("self",))[:limit])
    for message in messages:
        send(message.order.email, message.text)
    Message.objects.filter(pk__in=[message.pk for message in messages]).update(sent=timezone.now())
    return len(messages)
