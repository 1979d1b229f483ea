"""Plays the transcripts in `../../transcripts`, which all clients follow."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from counterpart import counterpart
from pgfresh import Database, Error, FaultStatus, _server, fresh_database
from pgfresh._database import kept_line

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"


def do(step: dict[str, Any], database: Database | None) -> Database:
    options = step.get("with", {})
    if step["do"] == "lease":
        return fresh_database(**options)
    assert database is not None
    if step["do"] == "reset":
        database.reset(**options)
    elif step["do"] == "fault":
        error, connection = options.pop("error", None), options.pop("connection", None)
        database.fault(error or (connection and f"connection {connection}"), **options)
    elif step["do"] == "faults":
        expected = [{**fault} for fault in step["answer"]["body"].get("faults", ())]
        for number, fault in enumerate(expected, 1):
            assert fault.pop("number") == number
            fault["text"], fault["statements"] = fault.pop("fault"), tuple(fault["statements"])
        assert database.faults() == [FaultStatus(**fault) for fault in expected]
    elif step["do"] == "lag":
        database.set_replica_lag(options["lag"])
    elif step["do"] == "promote":
        database.promote_replica()
    elif step["do"] == "check":
        if unfired := database._unfired():
            raise Error(unfired)
    elif options.get("test"):
        kept = database.release(**options)
        if kept:
            print(kept_line(kept), file=sys.stderr)
    elif options.get("failed"):
        with pytest.raises(AssertionError, match="the test fails"), database:
            raise AssertionError("the test fails")
    else:
        with database:
            pass
    return database


def check_error(raised: Error, expected: dict[str, Any]) -> None:
    if "begins" in expected:
        assert str(raised).startswith(expected["begins"])
        assert str(raised).endswith(expected.get("ends", ""))
    else:
        assert str(raised) == expected["text"]
    for part in ("code", "message", "detail", "hint", "remedy"):
        if "message" in expected:
            assert getattr(raised, part) == expected.get(part)


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.json")), ids=lambda path: path.stem)
def test_transcript(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    answers: list[dict[str, Any] | None] = []
    with counterpart(lambda request: answers.pop(0)) as server:
        text = path.read_text().replace("{port}", str(server.server_port))
        transcript = json.loads(text)
        start = transcript.get("start", {})
        log = tmp_path / "log"
        log.touch()
        environment = {
            "PGFRESH_BIN": str(TRANSCRIPTS / "pgfresh"),
            "FAKE_LOG": str(log),
            "FAKE_LINE": json.dumps(start.get("line")),
            "FAKE_EXIT": str(start.get("exit", "")),
        }
        for name in ("PGFRESH_CONTROL", "PGFRESH_HOLDER"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (environment | transcript.get("environment", {})).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(_server, "_found", {})
        monkeypatch.setattr(_server, "_failed", {})

        database = None
        for step in transcript["steps"]:
            server.requests.clear()
            answers[:] = [step.get("answer")]
            try:
                database = do(step, database)
                assert "raises" not in step
            except Error as error:
                check_error(error, step["raises"])
            assert server.requests == ([step["request"]] if "request" in step else [])
            stderr = capfd.readouterr().err
            if "exit" not in start:
                assert stderr == (step["prints"] + "\n" if "prints" in step else "")
            if step["do"] == "lease" and "raises" not in step:
                for name, value in step["answer"]["body"].items():
                    assert getattr(database, name) == value

        started = [line for line in log.read_text().splitlines() if line != "ended"]
        assert len(started) == transcript["spawned"]
        if "arguments" in start:
            assert started == [" ".join(["started", *start["arguments"]])]
