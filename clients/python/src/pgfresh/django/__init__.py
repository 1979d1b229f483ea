"""Django's PostgreSQL engine, with test databases from pgfresh.

    DATABASES["default"]["ENGINE"] = "pgfresh.django"   # in the settings for tests

`manage.py test`, its `--parallel`, pytest-django and pytest-xdist then lease migrated databases
instead of creating, migrating and dropping them. Django empties all tables after a
`TransactionTestCase` or a test that uses the fixture `transactional_db`. With this engine, pgfresh
resets the database instead, which restores rows that migrations inserted. Outside tests, this
engine is the same as Django's.
"""
