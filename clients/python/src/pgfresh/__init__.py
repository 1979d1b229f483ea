"""A fresh PostgreSQL database for every test, from the program pgfresh.

    with pgfresh.fresh_database() as database:
        connection = psycopg.connect(database.url)

No driver is needed or preferred: a database is a name and URLs. The fixtures for pytest are in
`pgfresh.pytest_plugin`, Django's database engine is `pgfresh.django`.
"""

from ._database import Database, fresh_database
from ._server import Error
from ._statements import Statement, Statements

__all__ = ["Database", "Error", "Statement", "Statements", "fresh_database"]
