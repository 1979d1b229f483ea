"""Fixtures for pytest: a fresh database for each test that asks for one.

Every process of pytest-xdist joins by itself. A failed test's database is released as such, so that
pgfresh may keep it; where it is then stands at the end of the report, and in a JUnit file as the
property `pgfresh_kept`. Whether a test has failed is known when its reports are made, that of its
teardown included. So reports mark the databases that the test used, and one whose fixture has ended
is released after the report of the teardown. A test beyond its budget, that of its mark or of
`pgfresh.toml`, fails at the end of its call.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from ._database import Database, kept_line, span
from ._database import fresh_database as lease
from ._server import Error, is_found, server

_OPTIONS = {"template": "what databases are copies of", "isolation": "how tests are kept apart"}
_KEPT = pytest.StashKey[list[tuple[str, str]]]()
"""Of the session: failed tests whose databases were kept, with their URLs, until a report tells."""
_ENDED = pytest.StashKey[list[Database]]()
"""Of the session: those whose fixtures have ended, until they are released."""
_LIMITS = ("statements", "n_plus_one", "time")
_MARKS = (*_OPTIONS, "record", *_LIMITS)
_DATABASES = pytest.StashKey[list[Database]]()
"""Of a test: those that it has for itself."""
_SHARED = pytest.StashKey[Database]()
"""Of the session: that of all tests."""
_RESETS = pytest.StashKey[int]()
"""Of a test: how often that had been reset before."""
_PROPERTY = "pgfresh_kept"
"""Of a report, as an attribute: what `_KEPT` has. In a JUnit file: the URL of the test's own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pgfresh", "fresh PostgreSQL databases")
    for option, meaning in _OPTIONS.items():
        group.addoption(f"--pgfresh-{option}", metavar="NAME", help=f"{meaning} [{_ini(option)}]")
        parser.addini(_ini(option), f"{meaning}, unless --pgfresh-{option} is given")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEPT] = []
    config.stash[_ENDED] = []
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
    __tracebackhide__ = True
    database = _lease(request.config, marked, record)
    database._test = request.node.nodeid
    database._kept = request.config.stash[_KEPT]
    request.node.stash[_DATABASES].append(database)
    yield database
    request.config.stash[_ENDED].append(database)


@pytest.fixture
def fresh_url(fresh_database: Database) -> str:
    """The URL of a fresh database for this test alone."""
    return fresh_database.url


@pytest.fixture(scope="session")
def fresh_session_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database for all tests of this process; with pytest-xdist there are several."""
    record = any({*_LIMITS, "record"} & _marked(item).keys() for item in request.session.items)
    __tracebackhide__ = True
    database = _lease(request.config, {}, record)
    # No test has used it yet.
    database._test = ""
    database._kept = request.config.stash[_KEPT]
    request.config.stash[_SHARED] = database
    yield database
    request.config.stash[_ENDED].append(database)


@pytest.fixture(scope="session")
def fresh_session_url(fresh_session_database: Database) -> str:
    """The URL of a fresh database for all tests of this process."""
    return fresh_session_database.url


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    shared = item.config.stash.get(_SHARED, None)
    # A test may be run again.
    item.stash[_DATABASES] = []
    item.stash[_RESETS] = shared._resets if shared else 0
    for name in _marked(item):
        if name not in _MARKS:
            raise Error(f'@pytest.mark.pgfresh has no "{name}"; it has {", ".join(_MARKS)}')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    limits = _limits(item)
    databases = [*item.stash[_DATABASES]]
    shared = item.config.stash.get(_SHARED, None)
    # One that was reset has nothing of other tests.
    if shared and _has_reset(item, shared):
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
    if report.failed:
        for database in _used(item):
            database._failed = database._failed or item.nodeid
    if report.when == "teardown":
        try:
            _release_ended(item.config)
        except Error as error:
            # Raised from here it would end the session.
            report.outcome = "failed"
            report.longrepr = "\n".join(filter(None, [report.longreprtext, str(error)]))
        kept = item.config.stash[_KEPT]
        # pytest-xdist hands on the attributes of a report. A JUnit file has the properties, under
        # this test: another one's would be wrong there.
        setattr(report, _PROPERTY, [*kept])
        report.user_properties.extend((_PROPERTY, url) for test, url in kept if test == item.nodeid)
        kept.clear()
    return report


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        # The fixtures of an interrupted session end without a report.
        _release_ended(session.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    told = [line for report in reports for line in getattr(report, _PROPERTY, ())]
    kept = told + terminalreporter.config.stash[_KEPT]
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


def _used(item: pytest.Item) -> list[Database]:
    """The databases that a test, or a fixture of it, has used so far."""
    databases = [*item.stash.get(_DATABASES, ())]
    shared = item.config.stash.get(_SHARED, None)
    # Unlike `item.fixturenames`, these have what `getfixturevalue` got, and nothing that the test
    # did not come to because a fixture before it failed.
    at_most = getattr(item, "fixturenames", ())
    requested = getattr(getattr(item, "_request", None), "_fixture_defs", at_most)
    if shared and ("fresh_session_database" in requested or _has_reset(item, shared)):
        databases.append(shared)
    return databases


def _has_reset(item: pytest.Item, shared: Database) -> bool:
    """Whether a test, or a fixture of it, has reset the session's database."""
    return shared._resets != item.stash.get(_RESETS, shared._resets)


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


def _lease(config: pytest.Config, marked: dict[str, Any], record: bool) -> Database:
    """A database, or an error whose report has no lines of our code: many tests may have it."""
    __tracebackhide__ = True
    try:
        _show_start(config)
        return lease(**_wishes(config) | marked, record=record)
    except Error as error:
        raise error.with_traceback(None) from None


def _show_start(config: pytest.Config) -> None:
    """Starts the server, and lets pgfresh say on the terminal what takes long: the template."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if is_found() or capture is None:
        return
    with capture.global_and_fixture_disabled():
        server()


def _release_ended(config: pytest.Config) -> None:
    ended = config.stash[_ENDED]
    while ended:
        database = ended.pop(0)
        if database is config.stash.get(_SHARED, None):
            del config.stash[_SHARED]
        database._end()
