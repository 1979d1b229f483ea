"""Reading the audit log, and telling it who is at work."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from .models import AuditEntry


def act_as(session: Session, actor: str) -> None:
    """Name the author of what the current transaction changes."""
    session.execute(select(func.set_config("shop.actor", actor, True)))


def trail(session: Session, table: str, key: object) -> list[AuditEntry]:
    """All changes of a row, oldest first."""
    return list(
        session.scalars(
            select(AuditEntry)
            .where(AuditEntry.table_name == table, AuditEntry.row_key == str(key))
            .order_by(AuditEntry.id)
        )
    )


def changes(entry: AuditEntry) -> dict[str, tuple[object, object]]:
    """Old and new value of each column an entry changed."""
    old, new = entry.old or {}, entry.new or {}
    return {
        column: (old.get(column), new.get(column))
        for column in sorted(old.keys() | new.keys())
        if old.get(column) != new.get(column)
    }
