"""Suppliers, categories, products and variants."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM, JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.create_table(
        "suppliers",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("country_code", sa.String(2), sa.ForeignKey("countries.code"), nullable=False),
        sa.Column("lead_time_days", sa.Integer, nullable=False, server_default="7"),
        sa.CheckConstraint("lead_time_days >= 0", name="lead_time_days"),
    )
    op.create_index("suppliers_country_code_idx", "suppliers", ["country_code"])

    op.create_table(
        "categories",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("parent_id", sa.BigInteger, sa.ForeignKey("categories.id")),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("slug", sa.Text, nullable=False, unique=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.UniqueConstraint("parent_id", "position", deferrable=True, initially="DEFERRED"),
        sa.CheckConstraint("parent_id <> id", name="parent_id"),
    )

    op.execute("CREATE TYPE tax_category AS ENUM ('standard', 'reduced', 'zero')")
    op.create_table(
        "products",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("supplier_id", sa.BigInteger, sa.ForeignKey("suppliers.id")),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("slug", sa.Text, nullable=False, unique=True),
        sa.Column("description", sa.Text, nullable=False, server_default=""),
        sa.Column(
            "tax_category",
            ENUM(name="tax_category", create_type=False),
            nullable=False,
            server_default="standard",
        ),
        sa.Column("active", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
    )
    op.create_index("products_supplier_id_idx", "products", ["supplier_id"])
    op.create_index(
        "products_active_created_at_idx",
        "products",
        [sa.text("created_at DESC")],
        postgresql_where=sa.text("active"),
    )

    op.create_table(
        "product_categories",
        sa.Column(
            "product_id",
            sa.BigInteger,
            sa.ForeignKey("products.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("category_id", sa.BigInteger, sa.ForeignKey("categories.id"), primary_key=True),
    )
    op.create_index("product_categories_category_id_idx", "product_categories", ["category_id"])

    op.create_table(
        "product_images",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "product_id",
            sa.BigInteger,
            sa.ForeignKey("products.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("path", sa.Text, nullable=False, unique=True),
        sa.UniqueConstraint("product_id", "position"),
    )

    op.create_table(
        "variants",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "product_id",
            sa.BigInteger,
            sa.ForeignKey("products.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("sku", sa.Text, nullable=False, unique=True),
        sa.Column("attributes", JSONB, nullable=False, server_default="{}"),
        sa.Column("weight_grams", sa.Integer, nullable=False, server_default="0"),
        sa.Column("active", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.CheckConstraint("weight_grams >= 0", name="weight_grams"),
    )
    op.create_index("variants_product_id_idx", "variants", ["product_id"])
    op.create_index("variants_attributes_idx", "variants", ["attributes"], postgresql_using="gin")


def downgrade() -> None:
    op.drop_table("variants")
    op.drop_table("product_images")
    op.drop_table("product_categories")
    op.drop_table("products")
    op.execute("DROP TYPE tax_category")
    op.drop_table("categories")
    op.drop_table("suppliers")
