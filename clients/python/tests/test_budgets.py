"""Tests budgets and statement counts on a real server, in separate pytest processes."""

from __future__ import annotations

import json
import os

import pytest

import pgfresh

SHOP = """
import psycopg, pytest

def books_of(connection, authors):
    for author in range(authors):
        connection.execute("SELECT 'book' WHERE %s > 0", [author]).fetchall()

@pytest.fixture
def connection(fresh_url):
    with psycopg.connect(fresh_url, autocommit=True) as connection:
        yield connection
"""


def run(pytester: pytest.Pytester, tests: str, budget: str = "", *options: str) -> pytest.RunResult:
    pytester.makefile(".toml", pgfresh=f"[budget]\n{budget}" if budget else "")
    pytester.makepyfile(SHOP + tests)
    return pytester.runpytest_subprocess("--strict-markers", "-rA", *options)


def test_exceeded_budget_lists_statements(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.mark.pgfresh(statements=7, n_plus_one=7, time="10min")
        def test_at_its_budget(connection): books_of(connection, 7)

        @pytest.mark.pgfresh(statements=7, n_plus_one=6)
        def test_beyond(connection):
            connection.execute("CREATE TABLE t ()")
            books_of(connection, 7)

        @pytest.mark.pgfresh(statements=0)
        def test_nothing(fresh_url): pass

        @pytest.mark.pgfresh(time=0)
        def test_slow(connection): books_of(connection, 1)

        @pytest.mark.pgfresh(statements=0)
        def test_fails_anyhow(connection):
            books_of(connection, 1)
            assert False

        def test_without(connection): books_of(connection, 70)
        """.replace("\n        ", "\n"),
    )
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        [
            "budget exceeded: 8 statements, 7 allowed; "
            "one query ran 7 times with different values, 6 allowed",
            "      7 * SELECT ? WHERE ? > ? (N+1)",
            "      1 * CREATE TABLE t()",
            "budget exceeded: * ms in the database, 0.0 ms allowed",
        ]
    )
    assert len([line for line in result.outlines if line.startswith("budget exceeded")]) == 2


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["one", "two"])
def test_mark_replaces_budget_of_file(pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(
        pytester,
        """
        def test_within(connection): books_of(connection, 3)

        def test_beyond(connection): books_of(connection, 4)

        @pytest.mark.pgfresh(statements=4)
        def test_raised(connection): books_of(connection, 4)

        def test_in_a_session(fresh_session_url):
            with psycopg.connect(fresh_session_url, autocommit=True) as connection:
                books_of(connection, 9)
        """.replace("\n        ", "\n"),
        "statements = 3",
        *workers,
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["budget exceeded: 4 statements, 3 allowed"])


def test_reset_restarts_count(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.fixture
        def shared(fresh_session_database):
            fresh_session_database.reset()
            with psycopg.connect(fresh_session_database.url, autocommit=True) as connection:
                yield connection

        @pytest.mark.pgfresh(statements=5)
        @pytest.mark.parametrize("count", [5, 6, 4])
        def test_shared(shared, count): books_of(shared, count)

        @pytest.mark.pgfresh(statements=5)
        @pytest.mark.parametrize("first, then", [(5, 5), (6, 5), (5, 6)])
        def test_in_between(fresh_database, first, then):
            for count in first, then:
                fresh_database.reset()
                with psycopg.connect(fresh_database.url, autocommit=True) as connection:
                    books_of(connection, count)
        """.replace("\n        ", "\n"),
    )
    result.assert_outcomes(passed=3, failed=3)
    failed = [line.split()[1] for line in result.outlines if line.startswith("FAILED")]
    file = "test_reset_restarts_count.py::test"
    assert failed == [f"{file}_shared[6]", f"{file}_in_between[6-5]", f"{file}_in_between[5-6]"]


def test_budget_counts_from_reset_in_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def books(database, count):
            with psycopg.connect(database.url, autocommit=True) as connection:
                books_of(connection, count)

        def test_before(fresh_session_database): books(fresh_session_database, 9)

        @pytest.mark.pgfresh(statements=5)
        @pytest.mark.parametrize("first, then", [(5, 5), (6, 5), (5, 6)])
        def test_reset(fresh_session_database, first, then):
            for count in first, then:
                fresh_session_database.reset()
                books(fresh_session_database, count)
        """.replace("\n        ", "\n"),
    )
    result.assert_outcomes(passed=2, failed=2)
    failed = [line.split()[1] for line in result.outlines if line.startswith("FAILED")]
    file = "test_budget_counts_from_reset_in_test.py::test"
    assert failed == [f"{file}_reset[6-5]", f"{file}_reset[5-6]"]


def test_budget_without_database_is_error(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.mark.pgfresh(statements=5)
        def test_none(): pass

        def test_first(fresh_session_url): pass

        @pytest.mark.pgfresh(statements=5)
        def test_of_all(fresh_session_url): pass

        @pytest.mark.pgfresh(time="soon")
        def test_wrong(fresh_url): pass
        """.replace("\n        ", "\n"),
    )
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["E*Error: the test has a budget and no database of its own"] * 2)
    result.stdout.fnmatch_lines(['E*Error: invalid value for "time": "soon"'])


def test_run_omits_budget_errors_of_pytest(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", pgfresh="[budget]\nstatements = 1")
    pytester.makepyfile(
        SHOP
        + """
import os

@pytest.mark.xfail
def test_beyond(connection): books_of(connection, 4)

def test_by_name(connection):
    with psycopg.connect(os.environ["DATABASE_URL"], dbname="other") as other:
        other.execute("SELECT 1")
"""
    )
    binary = os.environ.get("PGFRESH_BIN", "pgfresh")
    result = pytester.run(binary, "run", "--", "pytest", "-q", "-p", "no:cacheprovider")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["1 passed, 1 xfailed*"])
    lines = [line for line in result.errlines if line]
    assert lines[:2] == [
        "pgfresh: a test exceeded its budget",
        "other: 3 statements, 1 allowed",
    ]
    counts = sorted(line.split()[0] + line.split()[-1] for line in lines[2:])
    assert counts == ["1?", "1BEGIN", "1COMMIT"]


def test_profile_names_tests_of_shared_database(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SHOP
        + """
@pytest.fixture
def shared(fresh_session_database):
    fresh_session_database.reset(close_sessions=True)
    with psycopg.connect(fresh_session_database.url, autocommit=True) as connection:
        yield connection

def test_once(shared): books_of(shared, 1)
def test_slow(shared): books_of(shared, 30)
"""
    )
    binary = os.environ.get("PGFRESH_BIN", "pgfresh")
    arguments = ["run", "--profile", "--report", "report.json", "--", "pytest", "-q"]
    assert pytester.run(binary, *arguments, "-p", "no:cacheprovider").ret == 0
    tests = json.loads((pytester.path / "report.json").read_text())["tests"]
    file = "test_profile_names_tests_of_shared_database.py"
    seen = {
        test["name"]: (test["statements"], [found["count"] for found in test["n_plus_one"]])
        for test in tests
    }
    assert seen == {f"{file}::test_once": (1, []), f"{file}::test_slow": (30, [30])}


def test_block_counts_statements() -> None:
    psycopg = pytest.importorskip("psycopg")
    with pgfresh.fresh_database(record=True) as database:
        assert database.recorded
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("SELECT 1")
            with database.statements() as seen:
                connection.execute("SELECT 2")
                for _ in range(2):
                    connection.execute("VALUES (1), (2)")
            connection.execute("SELECT 3")
            assert len(seen) == 3 and seen and seen.complete
            lines = [(line.text, line.count, line.rows) for line in seen.most_frequent]
            assert lines == [("VALUES (?), …", 2, 4), ("SELECT ?", 1, 1)]
            assert repr(seen) == "<3 statements: 2x VALUES (?), …, 1x SELECT ?>"
            assert seen.seconds == pytest.approx(sum(line.seconds for line in seen.most_frequent))
            with database.statements() as none:
                pass
            assert len(none) == 0 and not none and none.most_frequent == []
        with database.statements() as over:
            database.reset(close_sessions=True)
            with psycopg.connect(database.url, autocommit=True) as connection:
                connection.execute("SELECT 4")
        assert (len(over), over.complete) == (1, False)
        # After the reset, the earlier statements run more often than before it.
        with database.statements() as again:
            database.reset(close_sessions=True)
            with psycopg.connect(database.url, autocommit=True) as connection:
                for _ in range(2):
                    connection.execute("SELECT 5")
        assert (len(again), again.complete) == (2, False)
        with psycopg.connect(database.url, autocommit=True) as connection:
            with pytest.raises(psycopg.Error), database.statements() as failing:
                connection.execute("SELECT 1 / 0")
            assert (len(failing), failing.complete) == (1, True)
            with database.statements() as once, once:
                connection.execute("SELECT 6")
            assert [line.count for line in once.most_frequent] == [1]
        with pytest.raises(ZeroDivisionError), database.statements() as lost:
            database.release()
            raise ZeroDivisionError
        assert not lost.complete


def test_counting_requires_recording(pytester: pytest.Pytester) -> None:
    with pgfresh.fresh_database() as database:
        assert not database.recorded
        with pytest.raises(pgfresh.Error, match="are not recorded"), database.statements():
            pass
    result = run(
        pytester,
        """
        @pytest.mark.pgfresh(record=True)
        def test_helper(fresh_database, connection):
            with fresh_database.statements() as statements:
                books_of(connection, 3)
            assert len(statements) <= 2
        """.replace("\n        ", "\n"),
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*where 3 = len(<3 statements: 3x SELECT ? WHERE ? > ?>)"])
