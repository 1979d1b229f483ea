"""Customers and addresses."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.create_table(
        "customers",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("phone", sa.Text),
        sa.Column("country_code", sa.String(2), sa.ForeignKey("countries.code"), nullable=False),
        sa.Column("default_address_id", sa.BigInteger),
        sa.Column("newsletter", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("closed_at", TIMESTAMP),
        sa.CheckConstraint("position('@' in email) > 1", name="email"),
    )
    op.create_index("customers_country_code_idx", "customers", ["country_code"])
    op.create_index("customers_default_address_id_idx", "customers", ["default_address_id"])
    op.create_index("customers_created_at_idx", "customers", ["created_at"])
    op.create_index(
        "customers_email_open_key",
        "customers",
        [sa.text("lower(email)")],
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
    )

    op.create_table(
        "addresses",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "customer_id",
            sa.BigInteger,
            sa.ForeignKey("customers.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("recipient", sa.Text, nullable=False),
        sa.Column("line1", sa.Text, nullable=False),
        sa.Column("line2", sa.Text),
        sa.Column("postcode", sa.Text, nullable=False),
        sa.Column("city", sa.Text, nullable=False),
        sa.Column("country_code", sa.String(2), sa.ForeignKey("countries.code"), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
    )
    op.create_index("addresses_customer_id_idx", "addresses", ["customer_id"])
    op.create_index("addresses_country_code_idx", "addresses", ["country_code"])
    op.create_foreign_key(
        "customers_default_address_id_fkey",
        "customers",
        "addresses",
        ["default_address_id"],
        ["id"],
        deferrable=True,
        initially="DEFERRED",
    )


def downgrade() -> None:
    op.drop_constraint("customers_default_address_id_fkey", "customers", type_="foreignkey")
    op.drop_table("addresses")
    op.drop_table("customers")
