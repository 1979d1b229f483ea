"""Warehouses, stock and its movements."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "warehouses",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("code", sa.String(12), nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("country_code", sa.String(2), sa.ForeignKey("countries.code"), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False, server_default="100"),
    )
    op.create_index("warehouses_country_code_idx", "warehouses", ["country_code"])

    op.create_table(
        "stock",
        sa.Column("warehouse_id", sa.BigInteger, sa.ForeignKey("warehouses.id"), primary_key=True),
        sa.Column("variant_id", sa.BigInteger, sa.ForeignKey("variants.id"), primary_key=True),
        sa.Column("on_hand", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reserved", sa.Integer, nullable=False, server_default="0"),
        sa.CheckConstraint("on_hand >= 0", name="on_hand"),
        sa.CheckConstraint("reserved BETWEEN 0 AND on_hand", name="reserved"),
    )
    op.create_index("stock_variant_id_idx", "stock", ["variant_id"])
    op.create_index(
        "stock_exhausted_idx",
        "stock",
        ["variant_id"],
        postgresql_where=sa.text("on_hand = reserved"),
    )

    op.execute(
        "CREATE TYPE movement_reason AS ENUM"
        " ('receipt', 'sale', 'return', 'transfer', 'correction')"
    )
    op.create_table(
        "stock_movements",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("warehouse_id", sa.BigInteger, nullable=False),
        sa.Column("variant_id", sa.BigInteger, nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("reason", ENUM(name="movement_reason", create_type=False), nullable=False),
        sa.Column("reference", sa.Text),
        sa.Column(
            "created_at",
            sa.TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.func.now(),
        ),
        sa.ForeignKeyConstraint(
            ["warehouse_id", "variant_id"], ["stock.warehouse_id", "stock.variant_id"]
        ),
        sa.CheckConstraint("quantity <> 0", name="quantity"),
    )
    op.create_index(
        "stock_movements_warehouse_id_created_at_idx",
        "stock_movements",
        ["warehouse_id", "created_at"],
    )
    op.create_index(
        "stock_movements_variant_id_created_at_idx",
        "stock_movements",
        ["variant_id", "created_at"],
    )


def downgrade() -> None:
    op.drop_table("stock_movements")
    op.execute("DROP TYPE movement_reason")
    op.drop_table("stock")
    op.drop_table("warehouses")
