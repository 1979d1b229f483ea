"""The program behind: started once, undisturbed, and gone with the process that needed it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgfresh import Error, _server

BEGIN = "from pgfresh import fresh_database as fresh; database = fresh()\n"
READY = "print(flush=True);"
PATIENCE = 30
"""Seconds."""


def start(program: str) -> subprocess.Popen[str]:
    """Python, running a program that has a database and says so, in a session of its own."""
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", BEGIN + program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    process.stdout.readline()
    return process


def only_child(process: subprocess.Popen[str]) -> int:
    """A descriptor of it, which is readable once it has ended."""
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return os.pidfd_open(int(child))


def has_ended(child: int) -> bool:
    ended, _, _ = select.select([child], [], [], PATIENCE)
    os.close(child)
    return bool(ended)


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "os.abort()"])
def test_it_ends_with_its_process_whatever_ends_that(end: str) -> None:
    with start(f"import os; {READY} input(); {end}") as process:
        child = only_child(process)
        process.communicate("\n", PATIENCE)
        assert has_ended(child)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_its_process_by_signal(end: signal.Signals) -> None:
    with start(f"{READY} input()") as process:
        child = only_child(process)
        process.send_signal(end)
        assert has_ended(child)
        assert process.wait(PATIENCE) == -end


def test_an_orderly_end_is_silent() -> None:
    with start(f"{READY} database.release()") as process:
        assert process.communicate(timeout=PATIENCE) == ("", "")
        assert process.returncode == 0


def test_ctrl_c_leaves_it_to_those_who_clean_up() -> None:
    program = """
try:
    print(flush=True)
    input()
except KeyboardInterrupt:
    database.release()
    fresh().release()
    print("released")
"""
    with start(program) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == ("released\n", "")


def test_threads_share_one() -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    databases = list(pool.map(lambda _: fresh(), range(16)))
assert len({database.name for database in databases}) == 16
print(flush=True)
input()
"""
    with start(program) as process:
        os.close(only_child(process))
        process.communicate("\n", PATIENCE)


def test_a_forked_child_uses_it_and_does_not_end_it() -> None:
    program = """
import os, sys
print(flush=True)
if (child := os.fork()) == 0:
    fresh().release()
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
fresh().release()
"""
    with start(program) as process:
        _, complaints = process.communicate(timeout=PATIENCE)
        assert (process.returncode, complaints) == (0, "")


def test_the_one_of_the_wheel_goes_before_the_one_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = tmp_path / "pgfresh"
    carried.write_text("#!/bin/sh\nexit 9\n")
    carried.chmod(0o755)
    monkeypatch.delenv("PGFRESH_BIN")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(Error, match="ended with exit code 9"):
        _server._started()
