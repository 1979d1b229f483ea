"""Django's database engine `pgfresh.django`. Django imports it from a module named `base`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.db import connections
from django.db.backends.postgresql import base, creation, operations
from django.db.migrations.recorder import MigrationRecorder

from .._database import Database, fresh_database, reset
from .._server import server

FRESH = "PGFRESH"
"""Key in a connection's settings: whether the template contains all migrations of the tests."""
_ADDRESS = ("HOST", "PORT", "USER", "PASSWORD")
_TLS = ("sslmode", "sslrootcert")
"""Keys in a connection's settings, and in its OPTIONS, that a URL of pgfresh sets."""


class DatabaseCreation(creation.DatabaseCreation):
    """Leases test databases instead of creating them.

    Django still migrates a leased database. If migrating changes the database, the template is out
    of date: a clone or a reset wouldn't contain the change. In this case, Django clones databases
    and empties tables itself.
    """

    def __init__(self, connection: base.DatabaseWrapper) -> None:
        super().__init__(connection)
        self._leased: dict[str, Database] = {}
        self._replaced: dict[str, Any] = {}

    def create_test_db(self, *arguments: Any, **options: Any) -> str:
        settings = self.connection.settings_dict
        database = self._lease()
        url = urlsplit(database.url)
        leased = {
            "HOST": url.hostname,
            "PORT": url.port,
            "USER": url.username,
            "PASSWORD": unquote(url.password or ""),
            "NAME": database.name,
            "OPTIONS": settings["OPTIONS"] | dict(parse_qsl(url.query)),
        }
        self.connection.close()
        self.connection.close_pool()
        self._replaced = {key: settings[key] for key in leased}
        settings.update(leased)
        before = self._state()
        name = super().create_test_db(*arguments, **options)
        settings[FRESH] = before == self._state()
        return name

    def set_as_test_mirror(self, primary_settings_dict: dict[str, Any]) -> None:
        """Connects this alias to the leased database of another alias."""
        super().set_as_test_mirror(primary_settings_dict)
        settings, primary = self.connection.settings_dict, primary_settings_dict
        settings.update((key, primary[key]) for key in (*_ADDRESS, FRESH) if key in primary)
        tls = {key: value for key, value in primary["OPTIONS"].items() if key in _TLS}
        settings["OPTIONS"] = settings["OPTIONS"] | tls

    def destroy_test_db(
        self,
        old_database_name: str | None = None,
        verbosity: int = 1,
        keepdb: bool = False,
        suffix: str | None = None,
    ) -> None:
        super().destroy_test_db(old_database_name, verbosity, keepdb, suffix)
        if suffix is None:
            self.connection.settings_dict.update(self._replaced, **{FRESH: False})

    def _lease(self, name: str | None = None) -> Database:
        template = self.connection.settings_dict["TEST"].get("TEMPLATE")
        database = fresh_database(template=template, name=name)
        self._leased[database.name] = database
        return database

    def _state(self) -> tuple[set[tuple[str, str]], set[str]]:
        """Returns the applied migrations and the names of all tables."""
        applied = MigrationRecorder(self.connection).applied_migrations()
        return set(applied), set(self.connection.introspection.table_names())

    def _get_test_db_name(self) -> str:
        main = next(iter(self._leased), None)
        return main if main is not None else super()._get_test_db_name()  # type: ignore[misc]

    def _create_test_db(self, verbosity: int, autoclobber: bool, keepdb: bool = False) -> str:
        return self._get_test_db_name()

    def _clone_test_db(self, suffix: str, verbosity: int, keepdb: bool = False) -> None:
        if self.connection.settings_dict[FRESH]:
            # Django's parallel processes find this server in the environment.
            os.environ.update(server().environment())
            self._lease(self.get_test_db_clone_settings(suffix)["NAME"])
        else:
            super()._clone_test_db(suffix, verbosity, keepdb)  # type: ignore[misc]

    def _destroy_test_db(self, test_database_name: str, verbosity: int) -> None:
        leased = self._leased.pop(test_database_name, None)
        if leased is None:
            super()._destroy_test_db(test_database_name, verbosity)  # type: ignore[misc]
        else:
            self.connection.close_pool()
            leased.release()


class DatabaseOperations(operations.DatabaseOperations):
    """Resets test databases instead of emptying their tables."""

    def sql_flush(self, *arguments: Any, **options: Any) -> list[str]:
        # An empty list also prevents Django from recreating its content types.
        return [] if self._is_fresh() else super().sql_flush(*arguments, **options)

    def execute_sql_flush(self, sql_list: Iterable[str]) -> None:
        if self._is_fresh():
            name = self.connection.settings_dict["NAME"]
            # The reset closes all sessions, also those of mirrors.
            for connection in connections.all(initialized_only=True):
                if (
                    isinstance(connection, DatabaseWrapper)
                    and connection.settings_dict["NAME"] == name
                ):
                    connection.close()
                    connection.close_pool()
            reset(name)
        else:
            super().execute_sql_flush(sql_list)

    def _is_fresh(self) -> bool:
        return bool(self.connection.settings_dict.get(FRESH))


class DatabaseWrapper(base.DatabaseWrapper):
    creation_class = DatabaseCreation
    ops_class = DatabaseOperations
