"""Tests fixtures and options of the pytest plugin, in separate pytest processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpart import Counterpart
from pgfresh import fresh_database

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
def test_tests_and_workers_have_separate_databases(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    pytester.makepyfile(ISOLATED)
    pytester.runpytest_subprocess(*workers).assert_outcomes(passed=16)


def test_readme_recipe_sets_libpq_variables(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    recipe = readme.partition("**Programs that read `PGHOST`")[2].split("```")[1]
    for name in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"]:
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(recipe.replace("python", "import pytest", 1))
    pytester.makepyfile("""
        import psycopg

        def test_program(fresh_database):
            with psycopg.connect("") as connection:
                answer = connection.execute("SELECT current_database()").fetchone()
            assert answer == (fresh_database.name,)
        """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_marker_precedes_command_line_and_file(
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


def test_unknown_mark_argument_is_error(pytester: pytest.Pytester) -> None:
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


def test_positional_mark_argument_is_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.pgfresh("shop")
        def test_positional(fresh_url): pass
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    line = "E*Error: @pytest.mark.pgfresh takes no positional arguments: 'shop'"
    result.stdout.fnmatch_lines([line])


def test_test_can_release_its_database(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.pgfresh(statements=5)
        def test_releases(fresh_database):
            fresh_database.release()
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_second_release_does_nothing() -> None:
    with fresh_database(name="orders") as first:
        first.release()
        with fresh_database(name="orders") as second:
            first.release()
            second.reset()


def test_tests_without_databases_start_no_server(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGFRESH_BIN", "/nonexistent")
    pytester.makepyfile("def test(): pass")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_unknown_template_is_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test(fresh_database): pass")
    result = pytester.runpytest_subprocess("--pgfresh-template=shpo")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['E*Error: template "shpo" does not exist'])


def test_pytest_lists_fixtures_that_test_reached(
    pytester: pytest.Pytester,
) -> None:
    """Checks a private attribute of pytest that the plugin reads, `_request._fixture_defs`.

    The plugin reports the shared database for a failed test only if the test used it. The public
    `request.fixturenames` also has fixtures that pytest skipped because an earlier one failed, and
    pytest calls the hook `pytest_fixture_setup` once for the session. If this test fails with a new
    pytest, find the new attribute. Until then, `_used` falls back to `fixturenames`.
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
    lines = [
        f"*test_{name}" for name in ("asks {'shared'}", "names {'shared'}", "fails_before nothing")
    ]
    result.stdout.fnmatch_lines(lines)
