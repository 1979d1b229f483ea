"""Price history, one current price per variant and currency; what suppliers charge."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.create_table(
        "prices",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "variant_id",
            sa.BigInteger,
            sa.ForeignKey("variants.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("currency_code", sa.String(3), sa.ForeignKey("currencies.code"), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("valid_from", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("valid_to", TIMESTAMP),
        sa.CheckConstraint("amount >= 0", name="amount"),
        sa.CheckConstraint("valid_to > valid_from", name="period"),
    )
    op.create_index("prices_currency_code_idx", "prices", ["currency_code"])
    op.create_index(
        "prices_variant_id_currency_code_valid_from_idx",
        "prices",
        ["variant_id", "currency_code", "valid_from"],
    )
    op.create_index(
        "prices_current_key",
        "prices",
        ["variant_id", "currency_code"],
        unique=True,
        postgresql_where=sa.text("valid_to IS NULL"),
    )

    op.create_table(
        "supplier_offers",
        sa.Column(
            "supplier_id",
            sa.BigInteger,
            sa.ForeignKey("suppliers.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column(
            "variant_id",
            sa.BigInteger,
            sa.ForeignKey("variants.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("cost", sa.BigInteger, nullable=False),
        sa.Column("currency_code", sa.String(3), sa.ForeignKey("currencies.code"), nullable=False),
        sa.Column("min_quantity", sa.Integer, nullable=False, server_default="1"),
        sa.CheckConstraint("cost >= 0", name="cost"),
        sa.CheckConstraint("min_quantity > 0", name="min_quantity"),
    )
    op.create_index("supplier_offers_variant_id_idx", "supplier_offers", ["variant_id"])


def downgrade() -> None:
    op.drop_table("supplier_offers")
    op.drop_table("prices")
