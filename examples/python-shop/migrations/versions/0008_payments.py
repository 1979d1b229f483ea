"""Payments, and refunds that can never exceed them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.execute("CREATE TYPE payment_status AS ENUM ('pending', 'captured', 'failed')")
    op.create_table(
        "payments",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("order_id", sa.BigInteger, sa.ForeignKey("orders.id"), nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=False, unique=True),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("provider_reference", sa.Text),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column(
            "status",
            ENUM(name="payment_status", create_type=False),
            nullable=False,
            server_default="pending",
        ),
        sa.Column("failure", sa.Text),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("captured_at", TIMESTAMP),
        sa.CheckConstraint("amount > 0", name="amount"),
        sa.CheckConstraint("(status = 'captured') = (captured_at IS NOT NULL)", name="captured_at"),
    )
    op.create_index("payments_order_id_idx", "payments", ["order_id"])
    op.create_index("payments_captured_at_idx", "payments", ["captured_at"])
    op.create_index(
        "payments_provider_reference_key",
        "payments",
        ["provider", "provider_reference"],
        unique=True,
        postgresql_where=sa.text("provider_reference IS NOT NULL"),
    )

    op.create_table(
        "refunds",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("payment_id", sa.BigInteger, sa.ForeignKey("payments.id"), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("amount > 0", name="amount"),
    )
    op.create_index("refunds_payment_id_idx", "refunds", ["payment_id"])
    op.create_index("refunds_created_at_idx", "refunds", ["created_at"])

    # Locks the payment first, so that two refunds at once cannot both pass the check.
    op.execute(
        """
        CREATE FUNCTION limit_refunds() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            captured bigint;
            refunded bigint;
        BEGIN
            SELECT amount INTO captured FROM payments
            WHERE id = NEW.payment_id AND status = 'captured' FOR UPDATE;
            SELECT coalesce(sum(amount), 0) INTO refunded FROM refunds
            WHERE payment_id = NEW.payment_id AND id <> NEW.id;
            IF refunded + NEW.amount > coalesce(captured, 0) THEN
                RAISE check_violation USING
                    MESSAGE = format('refunds of payment %s exceed it', NEW.payment_id),
                    CONSTRAINT = 'refunds_within_payment', TABLE = 'refunds';
            END IF;
            RETURN NEW;
        END
        $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER refunds_within_payment BEFORE INSERT OR UPDATE ON refunds
        FOR EACH ROW EXECUTE FUNCTION limit_refunds()
        """
    )


def downgrade() -> None:
    op.drop_table("refunds")
    op.execute("DROP FUNCTION limit_refunds()")
    op.drop_table("payments")
    op.execute("DROP TYPE payment_status")
