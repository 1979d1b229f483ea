"""Tests the migrated database and its reference data, and that the models match it."""

from datetime import date
from decimal import Decimal

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, func, inspect, select, text

from conftest import ROOT
from shop import checkout
from shop.models import SEEDED_TABLES, Base, Country, Currency, ShippingRate, TaxCategory


def test_revisions_form_one_line():
    scripts = ScriptDirectory.from_config(Config(str(ROOT / "alembic.ini")))
    assert len(scripts.get_heads()) == 1
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)


def test_models_match_migrations(engine):
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_check_constraints_match_migrations(engine):
    inspector = inspect(engine)
    for table in Base.metadata.sorted_tables:
        declared = {c.name for c in table.constraints if isinstance(c, CheckConstraint)}
        existing = {c["name"] for c in inspector.get_check_constraints(table.name)}
        assert declared == existing, table.name


def test_every_foreign_key_to_a_growing_table_has_an_index(engine):
    """Deleting a parent must not scan its children."""
    inspector = inspect(engine)
    lacking = []
    for table in Base.metadata.sorted_tables:
        prefixes = [
            index["column_names"][0]
            for index in inspector.get_indexes(table.name)
            if "postgresql_where" not in index["dialect_options"]
        ]
        prefixes.append(inspector.get_pk_constraint(table.name)["constrained_columns"][0])
        lacking += [
            (table.name, key["constrained_columns"][0])
            for key in inspector.get_foreign_keys(table.name)
            if key["referred_table"] not in SEEDED_TABLES
            and key["constrained_columns"][0] not in prefixes
        ]
    # A warehouse is never deleted; open reservations have a partial index.
    assert lacking == [("reservations", "warehouse_id")]


def test_emptying_the_tables_cannot_reach_the_seeded_ones():
    """TRUNCATE ... CASCADE follows references, so none may lead out of the seeded tables."""
    for name in SEEDED_TABLES:
        referred = {key.column.table.name for key in Base.metadata.tables[name].foreign_keys}
        assert referred <= SEEDED_TABLES, name


def test_upgrade_of_a_current_database_does_nothing(engine):
    config = Config(str(ROOT / "alembic.ini"))
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        before = MigrationContext.configure(connection).get_current_heads()
        command.upgrade(config, "head")
        assert MigrationContext.configure(connection).get_current_heads() == before


def test_euro_countries(session):
    codes = session.scalars(
        select(Country.code).where(Country.currency_code == "EUR").order_by(Country.code)
    ).all()
    assert codes == ["AT", "DE", "FR"]


def test_currencies_without_minor_units(session):
    assert session.scalars(select(Currency.code).where(Currency.minor_units == 0)).all() == ["JPY"]


def test_tax_rate_in_force(session):
    standard, reduced, zero = TaxCategory.STANDARD, TaxCategory.REDUCED, TaxCategory.ZERO
    for country, category, day, rate in (
        ("DE", standard, date(2020, 6, 30), "0.19"),
        ("DE", standard, date(2020, 7, 1), "0.16"),
        ("DE", standard, date(2020, 12, 31), "0.16"),
        ("DE", reduced, date(2021, 1, 1), "0.07"),
        ("CH", standard, date(2024, 1, 1), "0.081"),
        ("DE", zero, date(2024, 1, 1), "0"),
        ("US", standard, date(2024, 1, 1), "0"),
    ):
        assert checkout.tax_rate(session, country, category, day) == Decimal(rate), (country, day)


def test_tax_periods_do_not_overlap(session):
    overlaps = session.scalar(
        text(
            "SELECT count(*) FROM tax_rates a JOIN tax_rates b USING (country_code, tax_category)"
            " WHERE a.id < b.id AND daterange(a.valid_from, a.valid_to)"
            " && daterange(b.valid_from, b.valid_to)"
        )
    )
    assert overlaps == 0


def test_shipping_rates_grow_with_weight(session):
    previous = func.lag(ShippingRate.amount).over(
        partition_by=(
            ShippingRate.carrier_code,
            ShippingRate.country_code,
            ShippingRate.currency_code,
        ),
        order_by=ShippingRate.max_weight_grams,
    )
    steps = select(ShippingRate.amount, previous.label("previous")).subquery()
    falling = select(func.count()).where(steps.c.amount <= steps.c.previous)
    assert session.scalar(falling) == 0
