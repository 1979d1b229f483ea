"""Settings with defaults. The table contains only values that differ from their default."""

from typing import Any

from sqlalchemy import delete
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from .db import atomic
from .errors import NotFound
from .models import Setting

DEFAULTS: dict[str, Any] = {
    "cart.max_quantity": 99,
    "shipping.free_from": None,
    "returns.days": 30,
    "reviews.moderated": True,
}


def get(session: Session, key: str) -> Any:
    if key not in DEFAULTS:
        raise NotFound("setting", key)
    setting = session.get(Setting, key)
    return DEFAULTS[key] if setting is None else setting.value


@atomic
def put(session: Session, key: str, value: Any) -> None:
    if key not in DEFAULTS:
        raise NotFound("setting", key)
    session.execute(
        insert(Setting)
        .values(key=key, value=value)
        .on_conflict_do_update(index_elements=["key"], set_={"value": value})
    )
    session.expire_all()


@atomic
def reset(session: Session, key: str) -> None:
    session.execute(delete(Setting).where(Setting.key == key))
