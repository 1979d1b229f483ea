"""Fixtures for pytest: a fresh database for each test that asks for one.

Every process of pytest-xdist joins by itself. A failed test's database is released as such, so that
pgfresh may keep it; where it is then stands at the end of the report, and in a JUnit file as the
property `pgfresh_kept`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from ._database import Database, kept_line
from ._database import fresh_database as lease

_OPTIONS = {"template": "what databases are copies of", "isolation": "how tests are kept apart"}
_FAILED = pytest.StashKey[bool]()
_KEPT = pytest.StashKey[list[str]]()
_PROPERTY = "pgfresh_kept"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pgfresh", "fresh PostgreSQL databases")
    for option, meaning in _OPTIONS.items():
        group.addoption(f"--pgfresh-{option}", metavar="NAME", help=f"{meaning} [{_ini(option)}]")
        parser.addini(_ini(option), f"{meaning}, unless --pgfresh-{option} is given")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEPT] = []
    config.addinivalue_line(
        "markers",
        "pgfresh(template=None, isolation=None): what the test wants from fresh_database",
    )


@pytest.fixture
def fresh_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database for this test alone."""
    marker = request.node.get_closest_marker("pgfresh")
    database = lease(**_wishes(request.config) | (marker.kwargs if marker else {}))
    yield database
    _release(database, request, failed=request.node.stash.get(_FAILED, False))


@pytest.fixture
def fresh_url(fresh_database: Database) -> str:
    """The URL of a fresh database for this test alone."""
    return fresh_database.url


@pytest.fixture(scope="session")
def fresh_session_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database for all tests of this process; with pytest-xdist there are several."""
    database = lease(**_wishes(request.config))
    yield database
    _release(database, request, failed=request.session.testsfailed > 0)


@pytest.fixture(scope="session")
def fresh_session_url(fresh_session_database: Database) -> str:
    """The URL of a fresh database for all tests of this process."""
    return fresh_session_database.url


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    before = report.when != "setup" and item.stash.get(_FAILED, False)
    item.stash[_FAILED] = before or report.failed
    if report.when == "teardown":
        kept = item.config.stash[_KEPT]
        report.user_properties.extend((_PROPERTY, url) for url in kept)
        kept.clear()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    kept = [
        (report.nodeid, value)
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    if kept:
        terminalreporter.section("kept databases")
    for test, url in kept:
        terminalreporter.line(test)
        terminalreporter.line(kept_line(str(url)))


def _ini(option: str) -> str:
    return f"pgfresh_{option}"


def _wishes(config: pytest.Config) -> dict[str, str]:
    """What the command line and the ini file say; neither says "" but to mean nothing."""
    wishes = {
        option: config.getoption(f"--pgfresh-{option}") or config.getini(_ini(option))
        for option in _OPTIONS
    }
    return {option: wish for option, wish in wishes.items() if wish}


def _release(database: Database, request: pytest.FixtureRequest, *, failed: bool) -> None:
    kept = database.release(failed=failed, test=request.node.nodeid)
    if kept:
        request.config.stash[_KEPT].append(kept)
