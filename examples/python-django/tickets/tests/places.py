from datetime import datetime, timedelta, timezone

from tickets.models import Event, Seat, Venue

EVENING = datetime(2030, 5, 17, 18, 30, tzinfo=timezone.utc)


def make_event(seats: int = 10, price: int = 2000, days: int = 0) -> Event:
    venue, made = Venue.objects.get_or_create(name=f"hall with {seats} seats")
    if made:
        Seat.objects.bulk_create(Seat(venue=venue, row="A", number=n + 1) for n in range(seats))
    starts = EVENING + timedelta(days=days)
    return Event.objects.create(venue=venue, title="Concert", starts=starts, price=price)
