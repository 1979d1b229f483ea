"""Tests faults on a real server, in separate pytest processes and without pytest."""

from __future__ import annotations

import psycopg
import pytest

import pgfresh

IMPORTS = "import psycopg, pytest\n"


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(IMPORTS + tests.replace("\n        ", "\n"))
    return pytester.runpytest_subprocess("-rA", *options)


def commit(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t ()")
        connection.commit()


def test_each_fault_fires_and_is_listed() -> None:
    with pgfresh.fresh_database() as database:
        database.fault("40001", at="commit")
        database.fault("57014", statement="SELECT 2", nth=2, times=2)
        database.fault("connection lost", at="after commit")
        database.fault(delay=0.001, statement="SELECT … FROM t")
        with pytest.raises(psycopg.errors.SerializationFailure):
            commit(database.url)
        with pytest.raises(psycopg.OperationalError):
            commit(database.url)
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("SELECT 1 FROM t")
            connection.execute("SELECT 2")
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("SELECT 2")
            fired = [(fault.text, fault.times, fault.fired) for fault in database.faults()]
            assert fired == [
                ("40001 at commit", 1, 1),
                ('57014 before statement "SELECT 2", number 2, 2 times', 2, 1),
                ("connection lost after commit", 1, 1),
                ('delay of 1 ms before statement "SELECT … FROM t"', 1, 1),
            ]
            assert database.faults()[1].candidates == 2
            assert database.faults()[1].statements == ("SELECT 2",)


def test_unfired_fault_ends_block_with_error() -> None:
    with (
        pytest.raises(pgfresh.Error, match="fault did not fire: 40001 at commit"),
        pgfresh.fresh_database() as database,
    ):
        database.fault("40001", at="commit")
    with pytest.raises(KeyError), pgfresh.fresh_database() as database:
        database.fault("40001", at="commit")
        raise KeyError("the test's own error")


def test_reset_raises_once_for_unfired_fault() -> None:
    with pgfresh.fresh_database() as database:
        database.fault("57P03", at="connect", duration=1)
        with pytest.raises(pgfresh.Error, match="fault did not fire: 57P03 at connect"):
            database.reset()
        database.reset()
        assert database.faults() == []


def test_impossible_fault_is_error() -> None:
    with pgfresh.fresh_database() as database:
        with pytest.raises(pgfresh.Error) as raised:
            database.fault("4001", at="commit")
        assert raised.value.remedy == "correct_value"
        assert "not an error SQLSTATE" in raised.value.message
        with pytest.raises(pgfresh.Error):
            database.fault("40001", delay="2s")


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["one", "two"])
def test_unfired_fault_fails_test(pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(
        pytester,
        """
        def test_never(fresh_database):
            fresh_database.fault("40001", at="commit", times=2)
            fresh_database.fault(delay="2s", statement="UPDATE")

        @pytest.fixture
        def faulty(fresh_database):
            fresh_database.fault("57014")
            return fresh_database.url

        def test_in_fixture(faulty): pass

        def test_fires(faulty):
            with psycopg.connect(faulty) as connection:
                with pytest.raises(psycopg.errors.QueryCanceled):
                    connection.execute("SELECT 1")

        def test_fails_anyhow(faulty): assert False

        def test_is_skipped(faulty): pytest.skip()

        def test_before_reset(fresh_database):
            fresh_database.fault("40001", at="commit")
            fresh_database.reset()
        """,
        *workers,
    )
    result.assert_outcomes(passed=1, skipped=1, failed=4)
    lines = [line.removeprefix("E").strip() for line in result.outlines]
    unfired = [line for line in lines if line.startswith(("fault did", "pgfresh.Error"))]
    assert sorted(unfired) == [
        "fault did not fire: 40001 at commit, 2 times (no matching commit)",
        "fault did not fire: 57014 before statement (no matching statement)",
        'fault did not fire: delay of 2000 ms before statement "UPDATE" (no matching statement)',
        "pgfresh.Error: fault did not fire: 40001 at commit (no matching commit)",
    ]
    kept = [line for line in result.outlines if line.startswith("pgfresh: kept the database")]
    assert len(kept) == 4


def test_unfired_fault_of_sql_fails_teardown(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_sql(fresh_url):
            with psycopg.connect(fresh_url) as connection:
                connection.execute(
                    \"\"\"SET pgfresh.fault = '{"error": "40001", "statement": "never"}'\"\"\"
                )
        """,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["fault did not fire: 40001 before statement*"])


def test_shared_database_fails_test_of_fault(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_first(fresh_session_database):
            fresh_session_database.fault("40001", at="commit")

        def test_second(fresh_session_database):
            pass

        def test_third(fresh_session_database):
            fresh_session_database.reset()
        """,
        "-p",
        "no:xdist",
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["fault did not fire: 40001 at commit*", "FAILED *::test_first*"])
