"""Fresh PostgreSQL databases for tests, from the pgfresh binary.

    with pgfresh.fresh_database() as database:
        connection = psycopg.connect(database.url)

The package has no driver: a `Database` has a name and URLs. `pgfresh.pytest_plugin` has the
fixtures for pytest, and `pgfresh.django` is a database engine for Django.
"""

from ._database import Database, fresh_database
from ._faults import FaultStatus
from ._server import Error
from ._statements import Statement, Statements

__all__ = ["Database", "Error", "FaultStatus", "Statement", "Statements", "fresh_database"]
