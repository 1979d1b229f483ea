"""The fixtures, in pytests of their own."""

from __future__ import annotations

import pytest

from counterpart import Counterpart

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


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["one", "two"])
def test_each_test_has_a_database_and_each_process_one_more(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    pytester.makepyfile(ISOLATED)
    pytester.runpytest_subprocess(*workers).assert_outcomes(passed=16)


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
    assert keeping.leases == [from_file, from_file, marked, from_line, from_line, marked]


def test_what_the_mark_has_not_is_the_error_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.pgfresh(statments=5)
        def test_marked(fresh_url): pass

        def test_plain(fresh_url): pass
        """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1, passed=1)
    known = "template, isolation, record, statements, n_plus_one, time"
    result.stdout.fnmatch_lines(
        [f'E*Error: @pytest.mark.pgfresh has no "statments"; it has {known}']
    )


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


def test_pytest_still_tells_which_fixtures_a_test_has_come_to(
    pytester: pytest.Pytester,
) -> None:
    """Pins what the plugin reads of pytest without a promise of pytest's: `_request._fixture_defs`.

    The database of a session is kept as that of a failed test if the test has used it. What is
    public has too much: `request.fixturenames` has also fixtures that the test did not come to,
    because one before them failed, and the hook `pytest_fixture_setup` runs once for a session. If
    this fails with a new pytest, look for the new place: until then `_used` takes the public names.
    """
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def shared(): pass

        @pytest.fixture(scope="session")
        def broken_for_all(): raise RuntimeError

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item):
            report = yield
            if report.when == "call" or report.failed:
                used = {"shared", "broken_for_all"} & {*item._request._fixture_defs}
                print(item.name, used or "nothing")
            return report
        """
    )
    pytester.makepyfile(
        """
        def test_asks(request): request.getfixturevalue("shared")
        def test_names(shared): pass
        def test_fails_before(broken_for_all, shared): pass
        """
    )
    result = pytester.runpytest_inprocess("-s", "-p", "no:cacheprovider")
    told = [
        f"*test_{name}" for name in ("asks {'shared'}", "names {'shared'}", "fails_before nothing")
    ]
    result.stdout.fnmatch_lines(told)
