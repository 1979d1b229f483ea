"""Tests that the plugin reports failed tests to pgfresh, and that pytest's report has the URLs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest

from counterpart import Counterpart, counterpart, keeps_failed

QUICKSTART = Path(__file__).parents[3] / "docs/quickstart/sqlalchemy.md"
KEPT = "pgfresh: kept the database of the failed test: "

FAILING = """
import pytest

@pytest.fixture
def broken(fresh_database):
    raise RuntimeError("setup")

@pytest.fixture
def breaking(fresh_database):
    yield
    raise RuntimeError("teardown")

def test_setup(broken): pass
def test_call(fresh_database): assert False
def test_teardown(breaking): pass
def test_passes(fresh_database): pass
@pytest.mark.xfail
def test_expected(fresh_database): assert False
def test_skips(fresh_database): pytest.skip()
"""

# Fixtures from the quick start. `session` starts with a reset, `engine` doesn't.
FIXTURES = """
import pytest

@pytest.fixture(scope="session")
def engine(fresh_session_database):
    return fresh_session_database.url

@pytest.fixture
def session(engine, fresh_session_database):
    fresh_session_database.reset()
    yield engine

@pytest.fixture
def broken():
    raise RuntimeError("setup")

@pytest.fixture
def breaking():
    yield
    raise RuntimeError("teardown")

@pytest.fixture(scope="session")
def breaking_for_all(engine):
    yield
    raise RuntimeError("teardown")
"""

# Tests, the failed tests whose names the kept shared databases get, and pytest options.
SESSIONS = {
    "none": ("def test_passes(session): pass", []),
    "first": (
        """
        def test_fails(session): assert False
        def test_passes(session): pass
        """,
        ["test_fails"],
    ),
    "middle": (
        """
        def test_passes(session): pass
        def test_fails(session): assert False
        def test_passes_too(session): pass
        """,
        ["test_fails"],
    ),
    "last": (
        """
        def test_passes(session): pass
        def test_fails(session): assert False
        """,
        ["test_fails"],
    ),
    "several": (
        """
        def test_fails(session): assert False
        def test_passes(session): pass
        def test_fails_too(session): assert False
        def test_fails_as_well(session): assert False
        """,
        ["test_fails", "test_fails_too", "test_fails_as_well"],
    ),
    "without a reset the first": (
        """
        def test_passes(engine): pass
        def test_fails(engine): assert False
        def test_passes_too(engine): pass
        def test_fails_too(engine): assert False
        """,
        ["test_fails"],
    ),
    "one that does not use it": (
        """
        def test_elsewhere(): assert False
        def test_passes(session): pass
        def test_alone(): assert False
        def test_passes_too(engine): pass
        def test_after(): assert False
        """,
        [],
    ),
    "one that does and one that does not": (
        """
        def test_elsewhere(): assert False
        def test_fails(session): assert False
        def test_after(): assert False
        def test_passes(session): pass
        """,
        ["test_fails"],
    ),
    "setup": (
        """
        def test_fails(session, broken): pass
        def test_passes(session): pass
        """,
        ["test_fails"],
    ),
    "setup before it is used": (
        """
        import pytest

        @pytest.fixture(scope="session")
        def broken_for_all(): raise RuntimeError

        def test_elsewhere(broken_for_all, session): pass
        def test_passes(session): pass
        def test_elsewhere_again(broken_for_all, session): pass
        def test_after(broken, request): request.getfixturevalue("session")
        """,
        [],
    ),
    "teardown": (
        """
        def test_fails(session, breaking): pass
        def test_passes(session): pass
        """,
        ["test_fails"],
    ),
    "teardown of the last": (
        """
        def test_passes(session): pass
        def test_fails(session, breaking): pass
        """,
        ["test_fails"],
    ),
    "call and teardown": (
        """
        def test_fails(session, breaking): assert False
        def test_passes(session): pass
        """,
        ["test_fails"],
    ),
    "teardown of the session": (
        """
        def test_passes(session): pass
        def test_fails(session, breaking_for_all): pass
        """,
        ["test_fails"],
    ),
    "a fixture of the session": (
        """
        import pytest

        @pytest.fixture(scope="session")
        def migrated(engine): raise RuntimeError

        def test_fails(migrated): pass
        def test_fails_too(migrated): pass
        def test_passes(session): pass
        """,
        ["test_fails"],
    ),
    "a fixture of the module": (
        """
        import pytest

        @pytest.fixture(scope="module", autouse=True)
        def tables(engine): pass

        def test_passes(): pass
        def test_fails(): assert False
        def test_passes_too(): pass
        """,
        ["test_fails"],
    ),
    "parameters": (
        """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_it(session, number): assert number != 1
        """,
        ["test_it[1]"],
    ),
    "its own and the session's": (
        """
        def test_fails(session, fresh_database): assert False
        def test_passes(session, fresh_database): pass
        """,
        ["test_fails", "test_fails"],
    ),
    "its own alone": (
        """
        def test_passes(session): pass
        def test_fails(fresh_database): assert False
        def test_passes_too(session): pass
        """,
        ["test_fails"],
    ),
    "a class of unittest": (
        """
        import unittest
        import pytest

        @pytest.mark.usefixtures("session")
        class Test(unittest.TestCase):
            def test_1_passes(self): pass
            def test_2_fails(self): self.fail()
            @unittest.expectedFailure
            def test_3_expected(self): self.fail()
            def test_4_skips(self): self.skipTest("")

        class TestElsewhere(unittest.TestCase):
            def test_fails(self): self.fail()
        """,
        ["Test::test_2_fails"],
    ),
    "a part of a test": (
        """
        def test_passes(session, subtests):
            with subtests.test(): pass
        def test_fails(session, subtests):
            with subtests.test(): assert False
            with subtests.test(): pass
        def test_passes_too(session): pass
        """,
        ["test_fails"],
    ),
    "expected failures and skips": (
        """
        import pytest

        @pytest.mark.xfail
        def test_expected(session): assert False
        @pytest.mark.xfail
        def test_expected_in_teardown(session, breaking): pass
        def test_in_its_words(session): pytest.xfail()
        def test_skips(session): pytest.skip()
        @pytest.mark.xfail(strict=True)
        def test_unexpected(session): pass
        @pytest.mark.skip
        def test_does_not_begin(session): pass
        """,
        ["test_unexpected"],
    ),
    "one that asks at run time": (
        """
        def test_passes(request): request.getfixturevalue("engine")
        def test_fails(request):
            request.getfixturevalue("engine")
            assert False
        def test_passes_too(session): pass
        """,
        ["test_fails"],
    ),
    "a fixture that asked at run time": (
        """
        import pytest

        @pytest.fixture(scope="session")
        def database(request): return request.getfixturevalue("fresh_session_database")

        @pytest.fixture
        def emptied(database): database.reset()

        def test_passes(emptied): pass
        def test_fails(emptied): assert False
        def test_elsewhere(): assert False
        def test_passes_too(emptied): pass
        """,
        ["test_fails"],
    ),
    "a reset at the end": (
        """
        import pytest

        @pytest.fixture
        def emptied(fresh_session_database):
            yield
            fresh_session_database.reset()

        def test_passes(emptied): pass
        def test_fails(emptied): assert False
        def test_passes_too(emptied): pass
        """,
        ["test_fails"],
    ),
    "the first failure ends the session": (
        """
        def test_fails(session): assert False
        def test_passes(session): pass
        """,
        ["test_fails"],
        "--maxfail=1",
    ),
    "a failed teardown ends the session": (
        """
        def test_fails(session, breaking): pass
        def test_passes(session): pass
        """,
        ["test_fails"],
        "--maxfail=1",
    ),
    "interrupted": (
        """
        def test_fails(session): assert False
        def test_passes(engine): pass
        def test_interrupted(engine): raise KeyboardInterrupt
        """,
        ["test_fails"],
    ),
}


def kept_of(result: pytest.RunResult) -> list[tuple[str, str]]:
    """Returns the failed tests at the end of pytest's report, with their database URLs."""
    lines = itertools.pairwise(result.outlines)
    return sorted((test, line.removeprefix(KEPT)) for test, line in lines if line.startswith(KEPT))


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["one", "two"])
def test_report_ends_with_kept_databases(
    pytester: pytest.Pytester, keeping: Counterpart, workers: list[str]
) -> None:
    pytester.makepyfile(test_it=FAILING)
    result = pytester.runpytest_subprocess(*workers, "--tb=no", "--junitxml=report.xml")
    result.assert_outcomes(errors=2, failed=1, passed=2, xfailed=1, skipped=1)
    names = ["test_call", "test_setup", "test_teardown"]
    assert keeping.failed_tests == [f"test_it.py::{name}" for name in names]
    kept = kept_of(result)
    assert [test for test, _ in kept] == keeping.failed_tests

    report = ElementTree.parse(pytester.path / "report.xml")
    properties = [
        (f"test_it.py::{case.attrib['name']}", found.attrib["value"])
        for case in report.iter("testcase")
        for found in case.iter("property")
    ]
    assert sorted(properties) == kept


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())
def test_failed_users_keep_session_database(
    pytester: pytest.Pytester, keeping: Counterpart, session: tuple[Any, ...]
) -> None:
    tests, names, *options = session
    pytester.makeconftest(FIXTURES)
    pytester.makepyfile(test_it=tests)
    result = pytester.runpytest_subprocess("--junitxml=report.xml", *options)
    failed = sorted(f"test_it.py::{name}" for name in names)
    assert keeping.failed_tests == failed
    assert [test for test, _ in kept_of(result)] == failed
    releases = [request for request in keeping.requests if request["method"] == "DELETE"]
    assert len(releases) == len(keeping.leases)

    # pytest writes the other tests to the file before pgfresh keeps the database, so they don't
    # have the property.
    report = ElementTree.parse(pytester.path / "report.xml")
    for case in report.iter("testcase"):
        assert case.find("properties") is None or case.attrib["name"] in " ".join(names)


def test_each_worker_reports_its_database(pytester: pytest.Pytester, keeping: Counterpart) -> None:
    pytester.makeconftest(FIXTURES)
    passes, fails = "def test_{}(session): pass\n", "def test_{}(session): assert False\n"
    pytester.makepyfile(
        test_one="".join([passes.format("a"), fails.format("b"), passes.format("c")]),
        test_two="".join([passes.format("d"), passes.format("e"), "def test_f(): assert False"]),
    )
    result = pytester.runpytest_subprocess("-n2", "--dist=loadfile")
    result.assert_outcomes(passed=4, failed=2)
    assert keeping.failed_tests == ["test_one.py::test_b"]
    assert [test for test, _ in kept_of(result)] == ["test_one.py::test_b"]


def test_kept_database_has_tables_of_test(pytester: pytest.Pytester) -> None:
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("sqlalchemy")
    [fixtures] = re.findall(r"```python\n( *# conftest.py\n.*?)```", QUICKSTART.read_text(), re.S)
    pytester.makeconftest(dedent(fixtures))
    pytester.makepyfile(
        test_it="""
        import pytest
        from sqlalchemy import text

        @pytest.mark.parametrize("number", range(4))
        def test_it(session, number):
            tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
            assert session.scalar(text(tables)) == 0
            session.execute(text(f"CREATE TABLE of_{number} ()"))
            session.commit()
            assert number % 2 == 0
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=2)
    kept = kept_of(result)
    assert [test for test, _ in kept] == ["test_it.py::test_it[1]", "test_it.py::test_it[3]"]
    for (_, url), table in zip(kept, ["of_1", "of_3"], strict=True):
        with psycopg.connect(url) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname='public'")
            assert tables.fetchall() == [(table,)]


def test_refused_release_is_error_of_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = keeps_failed()
    refused = {"status": 500, "body": {"error": {"message": "no"}}}
    pytester.makeconftest(FIXTURES)
    pytester.makepyfile("""
        def test_passes(fresh_database): pass
        def test_fails(session, breaking): pass
        """)
    with counterpart(
        lambda request: refused if request["method"] == "DELETE" else answer(request)
    ) as server:
        monkeypatch.setenv("PGFRESH_CONTROL", server.control)
        result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["no", "*RuntimeError: teardown", "no"])


def test_reported_name_is_pytest_node_id(pytester: pytest.Pytester, keeping: Counterpart) -> None:
    names = ["a b&c=d", "größe", "\\udcff", "x" * 10_000]
    pytester.makepyfile(
        test_it=f"""
        import pytest

        @pytest.mark.parametrize("_", range(4), ids={names!r})
        def test(fresh_database, _): assert False
        """
    )
    pytester.runpytest_subprocess("--tb=no").assert_outcomes(failed=4)
    begin = "test_it.py::test["
    reported = keeping.failed_tests
    assert all(test.startswith(begin) and len(test) <= 1000 for test in reported)
    assert begin + "a b&c=d]" in reported
    assert max(map(len, reported)) == 1000


def test_report_without_kept_databases_has_no_section(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test(fresh_database): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*kept the database*")
