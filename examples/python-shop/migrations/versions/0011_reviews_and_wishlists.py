"""Reviews with a materialised summary, and wish lists."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.execute("CREATE TYPE review_status AS ENUM ('pending', 'published', 'rejected')")
    op.create_table(
        "reviews",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "product_id",
            sa.BigInteger,
            sa.ForeignKey("products.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("customer_id", sa.BigInteger, sa.ForeignKey("customers.id"), nullable=False),
        sa.Column("rating", sa.Integer, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False, server_default=""),
        sa.Column(
            "status",
            ENUM(name="review_status", create_type=False),
            nullable=False,
            server_default="pending",
        ),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("product_id", "customer_id"),
        sa.CheckConstraint("rating BETWEEN 1 AND 5", name="rating"),
    )
    op.create_index("reviews_customer_id_idx", "reviews", ["customer_id"])
    op.create_index(
        "reviews_published_idx",
        "reviews",
        ["product_id", "rating"],
        postgresql_where=sa.text("status = 'published'"),
    )
    op.execute(
        """
        CREATE MATERIALIZED VIEW product_ratings AS
        SELECT product_id, count(*) AS reviews, round(avg(rating), 2) AS rating
        FROM reviews WHERE status = 'published' GROUP BY product_id
        """
    )
    op.execute("CREATE UNIQUE INDEX product_ratings_product_id_key ON product_ratings (product_id)")

    op.create_table(
        "wishlists",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "customer_id",
            sa.BigInteger,
            sa.ForeignKey("customers.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("customer_id", "name"),
    )
    op.create_table(
        "wishlist_items",
        sa.Column(
            "wishlist_id",
            sa.BigInteger,
            sa.ForeignKey("wishlists.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column(
            "variant_id",
            sa.BigInteger,
            sa.ForeignKey("variants.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("added_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
    )
    op.create_index("wishlist_items_variant_id_idx", "wishlist_items", ["variant_id"])


def downgrade() -> None:
    op.drop_table("wishlist_items")
    op.drop_table("wishlists")
    op.execute("DROP MATERIALIZED VIEW product_ratings")
    op.drop_table("reviews")
    op.execute("DROP TYPE review_status")
