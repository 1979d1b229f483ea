"""Make orders.id a bigint"""

import sqlalchemy as sa
from alembic import op

revision = "7b7d08"
down_revision = "4a6c07"


def upgrade() -> None:
    op.alter_column("orders", "id", type_=sa.BigInteger)
