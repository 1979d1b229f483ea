"""The fixtures, in pytests of their own."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from counterpart import Counterpart, counterpart

FAILING = """
import pytest

@pytest.fixture
def broken(fresh_database):
    raise RuntimeError("setup")

def test_setup(broken): pass
def test_call(fresh_database): assert False
def test_passes(fresh_database): pass
@pytest.mark.xfail
def test_expected(fresh_database): assert False
def test_skips(fresh_database): pytest.skip()
"""

ISOLATED = """
import psycopg, pytest

@pytest.mark.parametrize("number", range(8))
def test_alone(fresh_url, number):
    with psycopg.connect(fresh_url) as connection:
        connection.execute("CREATE TABLE only_mine ()")

@pytest.mark.parametrize("number", range(8))
def test_together(fresh_session_database, fresh_session_url, number):
    assert fresh_session_url == fresh_session_database.url
    with psycopg.connect(fresh_session_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS ours (number int)")
        connection.execute("INSERT INTO ours VALUES (1)")
        assert connection.execute("SELECT count(*) FROM ours").fetchone() == (count(),)

calls = 0
def count():
    global calls
    calls += 1
    return calls
"""


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that keeps the databases of failed tests."""
    numbers = itertools.count(1)

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "POST":
            name = f"fresh_{next(numbers)}"
            parts = ("url", "jdbc_url", "socket_url", "template")
            return {
                "status": 201,
                "body": {"name": name} | {part: f"{part}/{name}" for part in parts},
            }
        path, _, failed = asked["path"].partition("?failed=")
        if failed:
            return {"status": 200, "body": {"url": "kept" + path.removeprefix("/v1/databases")}}
        return {"status": 204}

    with counterpart(answer) as server:
        monkeypatch.setenv("PGFRESH_CONTROL", server.control)
        yield server


def failed_tests(server: Counterpart) -> list[str]:
    """The names of the tests that the server was told to have failed."""
    failed = (asked["path"].partition("?failed=true")[1:] for asked in server.asked)
    return sorted(unquote(test.removeprefix("&test=")) for found, test in failed if found)


def leases(server: Counterpart) -> list[Any]:
    return [asked["body"] for asked in server.asked if asked["method"] == "POST"]


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["one", "two"])
def test_each_test_has_a_database_and_each_process_one_more(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    pytester.makepyfile(ISOLATED)
    pytester.runpytest_subprocess(*workers).assert_outcomes(passed=16)


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["one", "two"])
def test_what_was_kept_is_told_at_the_end(
    pytester: pytest.Pytester, keeping: Counterpart, workers: list[str]
) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess(*workers, "--tb=no", "--junitxml=report.xml")
    result.assert_outcomes(errors=1, failed=1, passed=1, xfailed=1, skipped=1)
    told = [line for line in result.outlines if line.startswith("pgfresh: kept")]
    assert len(told) == 2
    file = "test_what_was_kept_is_told_at_the_end.py"
    assert failed_tests(keeping) == [f"{file}::test_call", f"{file}::test_setup"]

    report = ElementTree.parse(pytester.path / "report.xml")
    kept = {
        case.attrib["name"]: found.attrib["value"]
        for case in report.iter("testcase")
        for found in case.iter("property")
    }
    assert kept.keys() == {"test_setup", "test_call"}
    line = "pgfresh: kept the database of the failed test: "
    assert sorted(told) == sorted(line + url for url in kept.values())


def test_a_session_with_a_failed_test_has_failed(
    pytester: pytest.Pytester, keeping: Counterpart
) -> None:
    pytester.makepyfile("def test(fresh_session_database): assert False")
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(["pgfresh: kept the database of the failed test: kept/fresh_1"])


def test_a_test_is_called_as_pytest_shows_it_however_that_is(
    pytester: pytest.Pytester, keeping: Counterpart
) -> None:
    names = ["a b&c=d", "größe", "\\udcff", "x" * 10_000]
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.parametrize("_", range(4), ids={names!r})
        def test(fresh_database, _): assert False
        """)
    pytester.runpytest_subprocess("--tb=no").assert_outcomes(failed=4)
    begin = "test_a_test_is_called_as_pytest_shows_it_however_that_is.py::test["
    told = failed_tests(keeping)
    assert all(test.startswith(begin) and len(test) <= 1000 for test in told)
    assert begin + "a b&c=d]" in told
    assert max(map(len, told)) == 1000


def test_nothing_is_said_where_nothing_was_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test(fresh_database): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*kept the database*")


def test_wishes_come_from_the_marker_then_the_command_line_then_the_file(
    pytester: pytest.Pytester, keeping: Counterpart
) -> None:
    pytester.makeini("[pytest]\npgfresh_template = file\npgfresh_isolation = clone")
    pytester.makepyfile("""
        import pytest

        def test_plain(fresh_url, fresh_session_url): pass

        @pytest.mark.pgfresh(template="marked", isolation="rollback")
        def test_marked(fresh_url): pass
        """)
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=2)
    pytester.runpytest_subprocess("--pgfresh-template=line").assert_outcomes(passed=2)
    marked = {"template": "marked", "isolation": "rollback"}
    from_file = {"template": "file", "isolation": "clone"}
    from_line = {"template": "line", "isolation": "clone"}
    assert leases(keeping) == [from_file, from_file, marked, from_line, from_line, marked]


def test_nothing_is_started_for_tests_without_databases(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGFRESH_BIN", "/nonexistent")
    pytester.makepyfile("def test(): pass")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_what_pgfresh_refuses_is_the_error_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test(fresh_database): pass")
    result = pytester.runpytest_subprocess("--pgfresh-template=shpo")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['E*Error: template "shpo" does not exist'])
