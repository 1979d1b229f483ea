"""Settings, the audit log and the outbox."""

import pytest
from sqlalchemy import select

from shop import audit, outbox, pricing, settings
from shop.errors import NotFound
from shop.models import OutboxEvent, Setting


def test_defaults_until_something_is_set(session):
    assert settings.get(session, "returns.days") == 30
    settings.put(session, "returns.days", 14)
    assert settings.get(session, "returns.days") == 14
    settings.put(session, "returns.days", 60)
    assert settings.get(session, "returns.days") == 60
    settings.reset(session, "returns.days")
    assert settings.get(session, "returns.days") == 30


def test_settings_hold_any_json(session):
    for value in (0, "text", [1, {"a": None}], False, None):
        settings.put(session, "shipping.free_from", value)
        assert settings.get(session, "shipping.free_from") == value


def test_unknown_settings_are_mistakes(session):
    with pytest.raises(NotFound):
        settings.get(session, "returns.dayz")
    with pytest.raises(NotFound):
        settings.put(session, "returns.dayz", 1)
    assert session.scalars(select(Setting)).all() == []


def test_trail_of_a_product(session, make):
    product = make.product("Sofa")
    product.name = "Couch"
    session.commit()
    session.delete(product)
    session.commit()
    entries = audit.trail(session, "products", product.id)
    assert [entry.action for entry in entries] == ["insert", "update", "delete"]
    assert entries[0].old is None and entries[2].new is None
    changed = audit.changes(entries[1])
    assert changed["name"] == ("Sofa", "Couch")
    assert changed.keys() == {"name", "updated_at"}


def test_trail_of_a_price_change(session, make):
    variant = make.variant(price=1000)
    new = pricing.set_price(session, variant, "EUR", 1200)
    closed = audit.trail(session, "prices", 1)
    assert [entry.action for entry in closed] == ["insert", "update"]
    assert audit.changes(closed[1]).keys() == {"valid_to"}
    assert audit.trail(session, "prices", new.id)[0].new["amount"] == 1200


def test_actor_is_known_for_one_transaction(session, make):
    coupon = make.coupon()
    audit.act_as(session, "ann")
    coupon.active = False
    session.commit()
    coupon.active = True
    session.commit()
    actors = [entry.actor for entry in audit.trail(session, "coupons", coupon.id)]
    assert actors == [None, "ann", None]


def test_rolled_back_changes_leave_no_trail(session):
    session.add(Setting(key="returns.days", value=1))
    session.flush()
    assert len(audit.trail(session, "settings", "returns.days")) == 1
    session.rollback()
    assert audit.trail(session, "settings", "returns.days") == []


def emit(session, *topics):
    for topic in topics:
        outbox.emit(session, topic, {"topic": topic})
        session.flush()
    session.commit()


def test_events_are_delivered_in_order_and_once(session):
    emit(session, "a", "b", "c")
    seen: list[str] = []
    assert outbox.deliver(session, lambda topic, payload: seen.append(topic), limit=2) == 2
    assert outbox.pending(session) == 1
    assert outbox.deliver(session, lambda topic, payload: seen.append(topic)) == 1
    assert outbox.deliver(session, lambda topic, payload: seen.append(topic)) == 0
    assert seen == ["a", "b", "c"]


def test_event_of_a_rolled_back_transaction_never_happened(session):
    outbox.emit(session, "a", {})
    session.flush()
    session.rollback()
    assert outbox.pending(session) == 0


def test_failure_of_one_event_does_not_stop_the_others(session):
    emit(session, "good", "bad", "fine")

    def handler(topic, payload):
        if topic == "bad":
            raise ValueError("no such address")

    assert outbox.deliver(session, handler) == 2
    failed = session.scalars(select(OutboxEvent).where(OutboxEvent.processed_at.is_(None))).one()
    assert (failed.topic, failed.attempts) == ("bad", 1)
    assert failed.error == "ValueError: no such address"


def test_hopeless_events_are_left_alone(session):
    emit(session, "bad")
    calls: list[str] = []

    def handler(topic, payload):
        calls.append(topic)
        raise ValueError

    for _ in range(outbox.MAX_ATTEMPTS + 2):
        outbox.deliver(session, handler)
    assert len(calls) == outbox.MAX_ATTEMPTS
    assert outbox.pending(session) == 1


def test_retry_clears_the_error(session):
    emit(session, "a")

    def failing(topic, payload):
        raise ValueError("not now")

    outbox.deliver(session, failing)
    assert outbox.deliver(session, lambda topic, payload: None) == 1
    event = session.scalars(select(OutboxEvent)).one()
    assert (event.attempts, event.error) == (2, None)
