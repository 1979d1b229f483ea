"""Read the audit log, and set the author of changes."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from .models import AuditEntry


def act_as(session: Session, actor: str) -> None:
    """Set the author of the changes in the current transaction."""
    session.execute(select(func.set_config("shop.actor", actor, True)))


def trail(session: Session, table: str, key: object) -> list[AuditEntry]:
    """Return all changes to a row, oldest first."""
    return list(
        session.scalars(
            select(AuditEntry)
            .where(AuditEntry.table_name == table, AuditEntry.row_key == str(key))
            .order_by(AuditEntry.id)
        )
    )


def changes(entry: AuditEntry) -> dict[str, tuple[object, object]]:
    """Return the old and new value of each column that an entry changed."""
    old, new = entry.old or {}, entry.new or {}
    return {
        column: (old.get(column), new.get(column))
        for column in sorted(old.keys() | new.keys())
        if old.get(column) != new.get(column)
    }
