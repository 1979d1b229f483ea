"""What users are told of errors, and while they wait."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterpart import counterpart
from pgfresh import Error, _server, fresh_database

STAND_IN = Path(__file__).parents[2] / "transcripts/pgfresh"
WHY = 'template "app" is incomplete'
LINE = {"error": {"message": WHY, "detail": "It said nothing.", "hint": "Look."}}
SAYS = f"""\
pgfresh: building template "app"
pgfresh: {WHY}
DETAIL:  It said nothing.
HINT:  Look."""


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A binary that ends at once; the file tells how often it was started."""
    log = tmp_path / "log"
    monkeypatch.delenv("PGFRESH_CONTROL", raising=False)
    environment = {
        "PGFRESH_BIN": STAND_IN,
        "FAKE_LOG": log,
        "FAKE_LINE": json.dumps(LINE),
        "FAKE_EXIT": 1,
        "FAKE_SAYS": SAYS,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(_server, "_found", None)
    monkeypatch.setattr(_server, "_failed", None)
    return log


def test_a_server_that_does_not_start_is_tried_once(
    failing: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        with pytest.raises(Error) as raised:
            fresh_database()
        error = raised.value
        assert (error.message, error.detail, error.hint) == (WHY, "It said nothing.", "Look.")
    assert failing.read_text() == "started serve --shared --json\n"
    assert capfd.readouterr().err == SAYS + "\n"


def test_pytest_shows_the_cause_in_a_line_and_what_pgfresh_says(
    failing: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_x="def test_a(fresh_url): pass\n\ndef test_b(fresh_url): pass")
    monkeypatch.setenv("COLUMNS", "100")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=2)
    summary = 'ERROR *::test_{} - pgfresh.Error: template "app" is incomplete*'
    result.stdout.fnmatch_lines([summary.format("a"), summary.format("b")])
    # Of many tests that fail so, each report has the error and nothing of ours.
    result.stdout.fnmatch_lines(["E *pgfresh.Error: template *", "* HINT:  Look."])
    result.stdout.no_fnmatch_line("*_server.py*")
    assert len(result.outlines) < 40, result.outlines
    # Not captured.
    result.stderr.fnmatch_lines(['pgfresh: building template "app"'])
    assert failing.read_text() == "started serve --shared --json\n"


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (
            'Close them first, or set "close_sessions".',
            "Close them first, or call reset(close_sessions=True).",
        ),
        (
            'Lease it with "record": true.',
            "Lease it with record=True, or mark the test with it.",
        ),
    ],
)
def test_hints_are_in_words_of_python(
    there: str, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"status": 409, "body": {"error": {"code": "55006", "message": "no", "hint": there}}}
    with counterpart(lambda asked: answer) as server:
        monkeypatch.setenv("PGFRESH_CONTROL", server.control)
        monkeypatch.setattr(_server, "_found", None)
        monkeypatch.setattr(_server, "_failed", None)
        with pytest.raises(Error) as raised:
            fresh_database()
    assert raised.value.hint == here


def test_an_address_of_ipv6_has_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens there.
    control = "http://:secret@[::1]:1"
    monkeypatch.setenv("PGFRESH_CONTROL", control)
    monkeypatch.setattr(_server, "_found", None)
    monkeypatch.setattr(_server, "_failed", None)
    assert _server.server().environment()["PGFRESH_CONTROL"] == control
    with pytest.raises(Error, match=r"pgfresh at \[::1\]:1: "):
        fresh_database()
