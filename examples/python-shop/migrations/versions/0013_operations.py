"""Settings, audit log, outbox, and triggers that keep updated_at."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)

# table and the column the log finds a row by
AUDITED = {"products": "id", "prices": "id", "coupons": "id", "settings": "key"}
TOUCHED = ("products", "carts", "settings")


def upgrade() -> None:
    op.create_table(
        "settings",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", JSONB, nullable=False),
        sa.Column("updated_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
    )

    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("row_key", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("old", JSONB),
        sa.Column("new", JSONB),
        sa.Column("actor", sa.Text),
        sa.Column("at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
    )
    op.create_index(
        "audit_log_table_name_row_key_id_idx", "audit_log", ["table_name", "row_key", "id"]
    )
    op.create_index("audit_log_at_idx", "audit_log", ["at"], postgresql_using="brin")
    op.create_index(
        "audit_log_actor_idx",
        "audit_log",
        ["actor"],
        postgresql_where=sa.text("actor IS NOT NULL"),
    )
    op.execute(
        """
        CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            before jsonb;
            after jsonb;
        BEGIN
            IF TG_OP <> 'INSERT' THEN before := to_jsonb(OLD) - 'search'; END IF;
            IF TG_OP <> 'DELETE' THEN after := to_jsonb(NEW) - 'search'; END IF;
            INSERT INTO audit_log (table_name, row_key, action, old, new, actor)
            VALUES (
                TG_TABLE_NAME,
                coalesce(after, before) ->> TG_ARGV[0],
                lower(TG_OP),
                before,
                after,
                nullif(current_setting('shop.actor', true), '')
            );
            RETURN NULL;
        END
        $$
        """
    )
    for table, key in AUDITED.items():
        op.execute(
            f"""
            CREATE TRIGGER {table}_audit AFTER INSERT OR UPDATE OR DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION audit('{key}')
            """
        )

    op.execute(
        """
        CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.updated_at := clock_timestamp();
            RETURN NEW;
        END
        $$
        """
    )
    for table in TOUCHED:
        op.execute(
            f"""
            CREATE TRIGGER {table}_touch BEFORE UPDATE ON {table}
            FOR EACH ROW WHEN (OLD.updated_at = NEW.updated_at) EXECUTE FUNCTION touch()
            """
        )

    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("payload", JSONB, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("error", sa.Text),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("processed_at", TIMESTAMP),
    )
    op.create_index(
        "outbox_pending_idx", "outbox", ["id"], postgresql_where=sa.text("processed_at IS NULL")
    )
    op.create_index("outbox_topic_created_at_idx", "outbox", ["topic", "created_at"])


def downgrade() -> None:
    op.drop_table("outbox")
    for table in TOUCHED:
        op.execute(f"DROP TRIGGER {table}_touch ON {table}")
    op.execute("DROP FUNCTION touch()")
    for table in AUDITED:
        op.execute(f"DROP TRIGGER {table}_audit ON {table}")
    op.execute("DROP FUNCTION audit()")
    op.drop_table("audit_log")
    op.drop_table("settings")
