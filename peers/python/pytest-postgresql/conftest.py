from pathlib import Path

import pytest
from pytest_postgresql import factories

postgresql_proc = factories.postgresql_proc(load=[Path("../../schema/00001_shop.sql")])
postgresql = factories.postgresql("postgresql_proc")


@pytest.fixture
def connection(postgresql):
    return postgresql
