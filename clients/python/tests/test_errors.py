"""Tests error and progress messages."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from counterpart import counterpart
from pgfresh import Error, _server, fresh_database
from pgfresh._database import duration_text

STAND_IN = Path(__file__).parents[2] / "transcripts/pgfresh"
MESSAGE = 'template "app" is incomplete'
DETAIL = "The step printed nothing."
ERROR = {"code": "template_failed", "detail": DETAIL, "hint": "Look.", "remedy": "look"}
LINE = {"error": {"message": MESSAGE, **ERROR}}
STDERR = f"""\
pgfresh: building template "app"
pgfresh: {MESSAGE}
DETAIL:  The step printed nothing.
HINT:  Look."""


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Uses a binary that ends immediately. Returns the log, with one line for each start."""
    log = tmp_path / "log"
    monkeypatch.delenv("PGFRESH_CONTROL", raising=False)
    environment = {
        "PGFRESH_BIN": STAND_IN,
        "FAKE_LOG": log,
        "FAKE_LINE": json.dumps(LINE),
        "FAKE_EXIT": 1,
        "FAKE_STDERR": STDERR,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(_server, "_found", {})
    monkeypatch.setattr(_server, "_failed", {})
    return log


def test_missing_binary_has_a_hint_for_the_platform() -> None:
    assert _server._install_hint("linux").startswith('Run "make install" in a checkout')
    assert _server._install_hint("darwin").startswith('Run "cargo install --locked --path crates')
    hint = _server._install_hint("win32")
    assert hint.startswith("pgfresh runs on Linux and macOS, not on win32. Run the tests in WSL 2")


def test_failed_start_is_not_repeated(failing: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        with pytest.raises(Error) as raised:
            fresh_database()
        error = raised.value
        assert error.message == MESSAGE
        assert {part: getattr(error, part) for part in ERROR} == ERROR
    assert failing.read_text() == "started serve --shared --json\n"
    assert capfd.readouterr().err == STDERR + "\n"


def test_pytest_report_has_error_without_traceback(
    failing: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_x="def test_a(fresh_url): pass\n\ndef test_b(fresh_url): pass")
    monkeypatch.setenv("COLUMNS", "100")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=2)
    summary = 'ERROR *::test_{} - pgfresh.Error: template "app" is incomplete*'
    result.stdout.fnmatch_lines([summary.format("a"), summary.format("b")])
    # Each report shows the error but no line of the client's code, because many tests may fail
    # with the same error.
    result.stdout.fnmatch_lines(["E *pgfresh.Error: template *", "* HINT:  Look."])
    result.stdout.no_fnmatch_line("*_server.py*")
    assert len(result.outlines) < 40, result.outlines
    # pytest doesn't capture the progress.
    result.stderr.fnmatch_lines(['pgfresh: building template "app"'])
    assert failing.read_text() == "started serve --shared --json\n"


@pytest.mark.parametrize(
    ("remedy", "hint"),
    [
        ("close_sessions", "Close them first, or call reset(close_sessions=True)."),
        ("record", "Lease it with record=True, or mark the test with it."),
        ("make_room", "Whatever the server says."),
        (None, "Whatever the server says."),
    ],
)
def test_hints_name_python_options(
    remedy: str | None, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"code": "55006", "message": "no", "hint": "Whatever the server says."}
    if remedy:
        error["remedy"] = remedy
    answer = {"status": 409, "body": {"error": error}}
    with counterpart(lambda request: answer) as server:
        monkeypatch.setenv("PGFRESH_CONTROL", server.control)
        monkeypatch.setattr(_server, "_found", {})
        monkeypatch.setattr(_server, "_failed", {})
        with pytest.raises(Error) as raised:
            fresh_database()
    assert (raised.value.hint, raised.value.remedy) == (hint, remedy)


def test_ipv6_address_has_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens on this port.
    control = "http://:secret@[::1]:1"
    monkeypatch.setenv("PGFRESH_CONTROL", control)
    monkeypatch.setattr(_server, "_found", {})
    monkeypatch.setattr(_server, "_failed", {})
    assert _server.server().environment()["PGFRESH_CONTROL"] == control
    with pytest.raises(Error, match=r"pgfresh at \[::1\]:1: "):
        fresh_database()


def test_error_can_be_copied_and_pickled() -> None:
    error = Error("no", code="55006", detail="Why.", hint="Look.", remedy="look")
    for other in copy.copy(error), pickle.loads(pickle.dumps(error)):
        assert str(other) == "no\nDETAIL:  Why.\nHINT:  Look."
        assert (other.message, other.code, other.remedy) == ("no", "55006", "look")


def test_error_without_message_is_unreadable(
    failing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LINE", '{"error": {"message": null}}')
    with pytest.raises(Error, match="could not read what "):
        fresh_database()


@pytest.mark.parametrize("time", [float("nan"), float("inf")])
def test_infinite_time_is_error(time: float) -> None:
    with pytest.raises(Error, match="the time is not finite"):
        duration_text(time)
