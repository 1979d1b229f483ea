"""Events, which are stored with the change that they report, and delivered afterwards."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from .clock import utcnow
from .db import atomic
from .models import OutboxEvent

MAX_ATTEMPTS = 3

Handler = Callable[[str, dict[str, Any]], None]


def emit(session: Session, topic: str, payload: dict[str, Any]) -> OutboxEvent:
    """Add an event to the current transaction."""
    event = OutboxEvent(topic=topic, payload=payload)
    session.add(event)
    return event


@atomic
def deliver(session: Session, handler: Handler, *, limit: int = 10) -> int:
    """Pass the oldest pending events to `handler`, and return how many it has processed.

    Skips rows that another worker has locked. If the handler fails, the event stays pending
    until it has failed MAX_ATTEMPTS times.
    """
    events = session.scalars(
        select(OutboxEvent)
        .where(OutboxEvent.processed_at.is_(None), OutboxEvent.attempts < MAX_ATTEMPTS)
        .order_by(OutboxEvent.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    delivered = 0
    for event in events:
        event.attempts += 1
        try:
            handler(event.topic, event.payload)
        except Exception as error:
            event.error = f"{type(error).__name__}: {error}"
        else:
            event.error = None
            event.processed_at = utcnow()
            delivered += 1
    return delivered


def pending(session: Session) -> int:
    return (
        session.scalar(
            select(func.count()).select_from(OutboxEvent).where(OutboxEvent.processed_at.is_(None))
        )
        or 0
    )
