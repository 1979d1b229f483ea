"""Django's PostgreSQL engine with test databases from pgfresh.

    DATABASES["default"]["ENGINE"] = "pgfresh.django"   # in the settings for tests

`manage.py test`, its `--parallel`, pytest-django and pytest-xdist then take fresh databases instead
of creating, migrating and dropping their own. Where they would empty all tables after a test (a
`TransactionTestCase`, the fixture `transactional_db`), the database is reset: what migrations have
put into it is there again. Outside of tests this is Django's own engine.
"""
