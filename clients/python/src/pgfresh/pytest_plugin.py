"""Fixtures for pytest: a fresh database for each test that asks for one.

Every process of pytest-xdist joins by itself. A failed test's database is released as such, so that
pgfresh may keep it; where it is then stands at the end of the report, and in a JUnit file as the
property `pgfresh_kept`. A test beyond its budget, that of its mark or of `pgfresh.toml`, fails at
the end of its call.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from ._database import Database, kept_line, span
from ._database import fresh_database as lease
from ._server import Error

_OPTIONS = {"template": "what databases are copies of", "isolation": "how tests are kept apart"}
_FAILED = pytest.StashKey[bool]()
_KEPT = pytest.StashKey[list[str]]()
_LIMITS = ("statements", "n_plus_one", "time")
_DATABASES = pytest.StashKey[list[Database]]()
"""Of a test: those that it has for itself."""
_SHARED = pytest.StashKey[Database]()
"""Of the session: that of all tests."""
_RESETS = pytest.StashKey[int]()
"""Of a test: how often that had been reset before."""
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
        "pgfresh(template=None, isolation=None, record=False, statements=None, n_plus_one=None, "
        "time=None): what the test wants from fresh_database, and the budget that it has there",
    )


@pytest.fixture
def fresh_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database for this test alone."""
    marked = _marked(request.node)
    limits = {name: marked.pop(name) for name in _LIMITS if name in marked}
    record = bool(marked.pop("record", False) or limits)
    database = lease(**_wishes(request.config) | marked, record=record)
    database._test = request.node.nodeid
    request.node.stash.setdefault(_DATABASES, []).append(database)
    yield database
    # A test may be run again.
    request.node.stash[_DATABASES].remove(database)
    failed = request.node.stash.get(_FAILED, False)
    _release(database, request, failed=failed, test=database._test)


@pytest.fixture
def fresh_url(fresh_database: Database) -> str:
    """The URL of a fresh database for this test alone."""
    return fresh_database.url


@pytest.fixture(scope="session")
def fresh_session_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database for all tests of this process; with pytest-xdist there are several."""
    record = any({*_LIMITS, "record"} & _marked(item).keys() for item in request.session.items)
    database = lease(**_wishes(request.config), record=record)
    # No test has used it yet.
    database._test = ""
    request.config.stash[_SHARED] = database
    yield database
    del request.config.stash[_SHARED]
    failed = request.session.testsfailed > 0
    # Which test has failed is not known, so a kept database has no test's name.
    _release(database, request, failed=failed, test="" if failed else database._test)


@pytest.fixture(scope="session")
def fresh_session_url(fresh_session_database: Database) -> str:
    """The URL of a fresh database for all tests of this process."""
    return fresh_session_database.url


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    shared = item.config.stash.get(_SHARED, None)
    item.stash[_RESETS] = shared._resets if shared else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    limits = _limits(item)
    databases = [*item.stash.get(_DATABASES, ())]
    shared = item.config.stash.get(_SHARED, None)
    # One that was reset has nothing of other tests.
    if shared and shared._resets != item.stash[_RESETS]:
        databases.append(shared)
    if limits and not databases:
        raise Error(
            "the test has a budget and no database of its own",
            hint="Use fresh_database, or reset fresh_session_database before the test.",
        )
    for database in databases:
        database._test, database._limits = item.nodeid, limits
        database._exceeded.clear()
    try:
        result = yield
        for database in databases:
            _check(database, limits)
        return result
    finally:
        for database in databases:
            database._limits = {}


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


def _marked(item: pytest.Item) -> dict[str, Any]:
    """What the marks of a test say, the nearest one last."""
    marked: dict[str, Any] = {}
    for mark in reversed([*item.iter_markers("pgfresh")]):
        marked |= mark.kwargs
    return marked


def _limits(item: pytest.Item) -> dict[str, Any]:
    """The budget of a test, as pgfresh reads it."""
    marked = _marked(item)
    limits = {name: marked[name] for name in _LIMITS if marked.get(name) is not None}
    return limits | ({"time": span(limits["time"])} if "time" in limits else {})


def _check(database: Database, limits: dict[str, Any]) -> None:
    """Fails the test if it is beyond its budget."""
    if not (database.recorded or limits):
        return
    told = database._measure(limits)
    exceeded = [*database._exceeded, *([told["message"]] if "message" in told else [])]
    if exceeded:
        pytest.fail("\n".join(f"budget exceeded: {message}" for message in exceeded), pytrace=False)


def _wishes(config: pytest.Config) -> dict[str, str]:
    """What the command line and the ini file say; neither says "" but to mean nothing."""
    wishes = {
        option: config.getoption(f"--pgfresh-{option}") or config.getini(_ini(option))
        for option in _OPTIONS
    }
    return {option: wish for option, wish in wishes.items() if wish}


def _release(
    database: Database, request: pytest.FixtureRequest, *, failed: bool, test: str | None
) -> None:
    kept = database.release(failed=failed, test=test)
    if kept:
        request.config.stash[_KEPT].append(kept)
