"""Fixtures for pytest: a fresh database for each test that requests a database.

Each pytest-xdist worker finds the server by itself. The plugin reports failed tests, so that
pgfresh can keep their databases. The end of pytest's report lists the URLs of kept databases, and a
JUnit file contains them as the property `pgfresh_kept`.

A test can still fail in its teardown, so releasing a database when its fixture ends would be too
early. Instead, the report hook marks the databases of a failed test. After the teardown report, it
releases the databases whose fixtures have ended. A test that exceeds its budget, or whose fault
never fired, fails at the end of its call.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from ._database import Database, duration_text, kept_line
from ._database import fresh_database as lease
from ._server import Error, is_found, server

_OPTIONS = {"template": "template of the databases", "isolation": "isolation of the databases"}
_KEPT = pytest.StashKey[list[tuple[str, str]]]()
"""Kept databases that no report contains yet, in the session's stash: failed tests and URLs."""
_ENDED = pytest.StashKey[list[Database]]()
"""Databases whose fixtures have ended, in the session's stash until the plugin releases them."""
_LIMITS = ("statements", "n_plus_one", "time")
_MARKS = (*_OPTIONS, "record", *_LIMITS)
_DATABASES = pytest.StashKey[list[Database]]()
"""Databases that only one test uses, in the test's stash."""
_SHARED = pytest.StashKey[Database]()
"""Database that all tests share, in the session's stash."""
_RESETS = pytest.StashKey[int]()
"""How often the shared database was reset before the test, in the test's stash."""
_PROPERTY = "pgfresh_kept"
"""Name of the report attribute that contains `_KEPT`, and of the JUnit property with the URL."""


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
        "time=None): options of fresh_database for the test, and the budget of the test",
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
    database._test = ""  # No test has used it yet.
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
    # A plugin may run a test twice, so discard the databases from an earlier run.
    item.stash[_DATABASES] = []
    item.stash[_RESETS] = shared._resets if shared else 0
    for mark in item.iter_markers("pgfresh"):
        if mark.args:
            raise Error(
                f"@pytest.mark.pgfresh takes no positional arguments: {mark.args[0]!r}",
                hint='Name the option, for example template="shop".',
            )
    for name in _marked(item):
        if name not in _MARKS:
            raise Error(f'@pytest.mark.pgfresh has no "{name}"; it has {", ".join(_MARKS)}')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    limits = _limits(item)
    databases = [*item.stash[_DATABASES]]
    shared = item.config.stash.get(_SHARED, None)
    # After a reset, the shared database has only statements of this test.
    if shared and _has_reset(item, shared):
        databases.append(shared)
    elif shared and shared in _used(item):
        shared._next = item.nodeid, limits
    elif limits and not databases:
        raise _without_database()
    for database in databases:
        database._test, database._limits = item.nodeid, limits
        database._exceeded.clear()
    try:
        result = yield
        if shared and shared not in databases and _has_reset(item, shared):
            databases.append(shared)
        if limits and not databases:
            raise _without_database()
        messages = [message for database in databases for message in _exceeded(database, limits)]
        used = databases if shared is None or shared in databases else [*databases, shared]
        messages += [message for database in used if (message := database._unfired())]
        if messages:
            pytest.fail("\n".join(messages), pytrace=False)
        return result
    finally:
        for database in [*databases, *([shared] if shared else [])]:
            database._limits, database._next = {}, None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    for database in _used(item):
        if report.failed:
            database._failed = database._failed or item.nodeid
        database._skipped = database._skipped or report.skipped
    if report.when == "teardown":
        try:
            _release_ended(item.config)
        except Error as error:
            # An exception in this hook would end the session.
            report.outcome = "failed"
            report.longrepr = "\n".join(filter(None, [report.longreprtext, str(error)]))
        kept = item.config.stash[_KEPT]
        # pytest-xdist forwards the attributes of a report. A JUnit file lists the properties under
        # this test, so the properties contain only the databases of this test.
        setattr(report, _PROPERTY, [*kept])
        report.user_properties.extend((_PROPERTY, url) for test, url in kept if test == item.nodeid)
        kept.clear()
    return report


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        # In an interrupted session, fixtures end without a report, so release their databases here.
        _release_ended(session.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    reported = [line for report in reports for line in getattr(report, _PROPERTY, ())]
    kept = reported + terminalreporter.config.stash[_KEPT]
    if kept:
        terminalreporter.section("kept databases")
    for test, url in kept:
        terminalreporter.line(test)
        terminalreporter.line(kept_line(str(url)))


def _ini(option: str) -> str:
    return f"pgfresh_{option}"


def _marked(item: pytest.Item) -> dict[str, Any]:
    """Returns the merged arguments of a test's `pgfresh` marks. The closest mark wins."""
    marked: dict[str, Any] = {}
    for mark in reversed([*item.iter_markers("pgfresh")]):
        marked |= mark.kwargs
    return marked


def _limits(item: pytest.Item) -> dict[str, Any]:
    """Returns the limits in a test's marks, as the HTTP API expects them."""
    marked = _marked(item)
    limits = {name: marked[name] for name in _LIMITS if marked.get(name) is not None}
    return limits | ({"time": duration_text(limits["time"])} if "time" in limits else {})


def _used(item: pytest.Item) -> list[Database]:
    """Returns the databases that a test and its fixtures have used so far."""
    databases = [*item.stash.get(_DATABASES, ())]
    shared = item.config.stash.get(_SHARED, None)
    # Unlike `item.fixturenames`, `_fixture_defs` contains fixtures that `getfixturevalue` returned,
    # and doesn't contain fixtures that pytest skipped because an earlier fixture failed.
    at_most = getattr(item, "fixturenames", ())
    requested = getattr(getattr(item, "_request", None), "_fixture_defs", at_most)
    if shared and ("fresh_session_database" in requested or _has_reset(item, shared)):
        databases.append(shared)
    return databases


def _has_reset(item: pytest.Item, shared: Database) -> bool:
    """Returns whether a test or one of its fixtures has reset the shared database."""
    return shared._resets != item.stash.get(_RESETS, shared._resets)


def _without_database() -> Error:
    return Error(
        "the test has a budget and no database of its own",
        hint="Use fresh_database, or reset fresh_session_database in the test or its fixtures.",
    )


def _exceeded(database: Database, limits: dict[str, Any]) -> list[str]:
    """Returns a message for each part of the test, between resets, that exceeded the budget."""
    if not (database.recorded or limits):
        return []
    measured = database._measure(limits) if database._owner is not None else {}
    exceeded = [*database._exceeded, *([measured["message"]] if "message" in measured else [])]
    return [f"budget exceeded: {message}" for message in exceeded]


def _configured(config: pytest.Config) -> dict[str, str]:
    """Returns the options from the command line and the ini file. Ignores empty values."""
    values = {
        option: config.getoption(f"--pgfresh-{option}") or config.getini(_ini(option))
        for option in _OPTIONS
    }
    return {option: value for option, value in values.items() if value}


def _lease(config: pytest.Config, marked: dict[str, Any], record: bool) -> Database:
    """Leases a database. Errors have no traceback, because many tests may report the same error."""
    __tracebackhide__ = True
    try:
        _show_start(config)
        return lease(**_configured(config) | marked, record=record)
    except Error as error:
        raise error.with_traceback(None) from None


def _show_start(config: pytest.Config) -> None:
    """Starts the server without capturing, so that the terminal shows the template's progress."""
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
