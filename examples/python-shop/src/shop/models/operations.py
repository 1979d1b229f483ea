"""Settings, the audit log and the outbox."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from .base import Base, CreatedAt, Id, Quantity


class Setting(Base):
    __tablename__ = "settings"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Any] = mapped_column(JSONB)
    updated_at: Mapped[CreatedAt]


class AuditEntry(Base):
    """A change to a row, written by a trigger."""

    __tablename__ = "audit_log"
    __table_args__ = (
        Index(None, "table_name", "row_key", "id"),
        Index(None, "at", postgresql_using="brin"),
        Index(None, "actor", postgresql_where=text("actor IS NOT NULL")),
    )

    id: Mapped[Id]
    table_name: Mapped[str]
    row_key: Mapped[str]
    action: Mapped[str]
    old: Mapped[dict[str, Any] | None]
    new: Mapped[dict[str, Any] | None]
    actor: Mapped[str | None]
    at: Mapped[CreatedAt]


class OutboxEvent(Base):
    """An event for other systems, stored in the transaction that it reports."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("outbox_pending_idx", "id", postgresql_where=text("processed_at IS NULL")),
        Index(None, "topic", "created_at"),
    )

    id: Mapped[Id]
    topic: Mapped[str]
    payload: Mapped[dict[str, Any]]
    attempts: Mapped[Quantity] = mapped_column(server_default="0")
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    processed_at: Mapped[datetime | None]
