"""Currencies and countries."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    currencies = op.create_table(
        "currencies",
        sa.Column("code", sa.String(3), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("minor_units", sa.Integer, nullable=False, server_default="2"),
    )
    countries = op.create_table(
        "countries",
        sa.Column("code", sa.String(2), primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("currency_code", sa.String(3), sa.ForeignKey("currencies.code"), nullable=False),
        sa.Column("in_eu", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index("countries_currency_code_idx", "countries", ["currency_code"])

    op.bulk_insert(
        currencies,
        [
            {"code": "EUR", "name": "Euro", "minor_units": 2},
            {"code": "GBP", "name": "Pound sterling", "minor_units": 2},
            {"code": "USD", "name": "US dollar", "minor_units": 2},
            {"code": "CHF", "name": "Swiss franc", "minor_units": 2},
            {"code": "JPY", "name": "Yen", "minor_units": 0},
        ],
    )
    op.bulk_insert(
        countries,
        [
            {"code": "AT", "name": "Austria", "currency_code": "EUR", "in_eu": True},
            {"code": "CH", "name": "Switzerland", "currency_code": "CHF", "in_eu": False},
            {"code": "DE", "name": "Germany", "currency_code": "EUR", "in_eu": True},
            {"code": "FR", "name": "France", "currency_code": "EUR", "in_eu": True},
            {"code": "GB", "name": "United Kingdom", "currency_code": "GBP", "in_eu": False},
            {"code": "JP", "name": "Japan", "currency_code": "JPY", "in_eu": False},
            {"code": "US", "name": "United States", "currency_code": "USD", "in_eu": False},
        ],
    )


def downgrade() -> None:
    op.drop_table("countries")
    op.drop_table("currencies")
