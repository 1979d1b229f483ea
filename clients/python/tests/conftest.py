import os
from collections.abc import Iterator

import pytest

from counterpart import Counterpart, counterpart, keeps_failed

pytest_plugins = ["pytester"]

# A test that runs pytest in another directory starts a background server there. The server stops
# after this idle time.
os.environ["PGFRESH_IDLE"] = "20s"
# On a build machine, pytest's summary repeats whole messages, but the tests expect each message
# once.
for name in ("CI", "BUILD_NUMBER"):
    os.environ.pop(name, None)


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    """A server that keeps the databases of failed tests."""
    with counterpart(keeps_failed()) as server:
        monkeypatch.setenv("PGFRESH_CONTROL", server.control)
        yield server
