"""Run the migrations on the database that DATABASE_URL names, or on a given connection."""

from logging.config import fileConfig

from alembic import context
from sqlalchemy import Connection, pool

from shop.db import create_shop_engine, database_url
from shop.models import Base

config = context.config


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=Base.metadata)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif (given := config.attributes.get("connection")) is not None:
    run(given)
else:
    if config.config_file_name is not None:
        fileConfig(config.config_file_name, disable_existing_loggers=False)
    engine = create_shop_engine(database_url(), poolclass=pool.NullPool)
    with engine.connect() as connection:
        run(connection)
