"""Full text search over products, in a generated column."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE products ADD COLUMN search tsvector NOT NULL GENERATED ALWAYS AS (
            setweight(to_tsvector('english', name), 'A')
            || setweight(to_tsvector('english', description), 'B')
        ) STORED
        """
    )
    op.create_index("products_search_idx", "products", ["search"], postgresql_using="gin")


def downgrade() -> None:
    op.drop_column("products", "search")
