"""Tests that each process starts the binary once, and that the binary ends with the process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgfresh import Error, _server

BEGIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job of a shell ignores it.
from pgfresh import fresh_database as fresh; database = fresh()
"""
READY = "print(flush=True);"
TIMEOUT = 30
"""How long a process may take to end, in seconds."""


def start(program: str) -> subprocess.Popen[str]:
    """Runs a Python program in a new session. Returns once it has leased a database."""
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
    """Returns a file descriptor that becomes readable when the only child process ends."""
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return os.pidfd_open(int(child))


def has_ended(child: int) -> bool:
    ended, _, _ = select.select([child], [], [], TIMEOUT)
    os.close(child)
    return bool(ended)


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "os.abort()"])
def test_binary_ends_with_process(end: str) -> None:
    with start(f"import os; {READY} input(); {end}") as process:
        child = only_child(process)
        process.communicate("\n", TIMEOUT)
        assert has_ended(child)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_binary_ends_after_signal_to_process(end: signal.Signals) -> None:
    with start(f"{READY} input()") as process:
        child = only_child(process)
        process.send_signal(end)
        assert has_ended(child)
        assert process.wait(TIMEOUT) == -end


def test_normal_exit_prints_nothing() -> None:
    with start(f"{READY} database.release()") as process:
        assert process.communicate(timeout=TIMEOUT) == ("", "")
        assert process.returncode == 0


def test_cleanup_after_ctrl_c_reaches_server() -> None:
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
        assert process.communicate(timeout=TIMEOUT) == ("released\n", "")


def test_threads_share_one_binary() -> None:
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
        process.communicate("\n", TIMEOUT)


def test_forked_child_leases_by_itself() -> None:
    program = """
import os, sys
from pgfresh import _server
print(flush=True)
holder = _server.server().holder
if (child := os.fork()) == 0:
    fresh().release()
    assert _server.server().holder != holder
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
fresh().release()
"""
    with start(program) as process:
        _, stderr = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, stderr) == (0, "")


def test_forked_child_leaves_databases_to_parent() -> None:
    program = """
import os, sys
print(flush=True)
with fresh() as other:
    if (child := os.fork()) == 0:
        database.release()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    other.reset()
    database.reset()
"""
    with start(program) as process:
        _, stderr = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, stderr) == (0, "")


@pytest.mark.parametrize("end", ["raise SystemExit", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_binary_ends_before_forked_child(end: str) -> None:
    program = f"""
import os, time
{READY}
input()
if os.fork() == 0:
    time.sleep(600)
{end}
"""
    with start(program) as process:
        child = only_child(process)
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        try:
            # Otherwise the process would wait for the binary, and the binary for the forked child.
            assert process.wait(_server.STOP_TIMEOUT / 2) in (0, -signal.SIGKILL)
            assert has_ended(child)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_killed_forked_child_releases_its_databases() -> None:
    program = """
import os, time
print(flush=True)
if (child := os.fork()) == 0:
    fresh(name="of_killed_child")
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
for _ in range(100):
    try:
        fresh(name="of_killed_child").release()
        sys.exit(3)
    except Exception:
        time.sleep(0.1)
"""
    program = program.replace("import os, time", "import os, sys, time")
    with start(program) as process:
        process.communicate(timeout=TIMEOUT)
        assert process.returncode == 3


def test_fork_during_start_does_not_block_child(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 1\necho slow\n")
    slow.chmod(0o755)
    program = f"""
import contextlib, os, threading
from pgfresh import Error, _server
print(flush=True)
_server._found.clear()
binary, os.environ["PGFRESH_BIN"] = os.environ["PGFRESH_BIN"], {str(slow)!r}

def start():
    with contextlib.suppress(Error):
        fresh()

thread = threading.Thread(target=start)
thread.start()
while len(_server._lifelines) < 2:
    pass
if (child := os.fork()) == 0:
    os.environ["PGFRESH_BIN"] = binary
    fresh()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""
    with start(program) as process:
        _, stderr = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, stderr) == (0, "")


def test_binary_of_wheel_precedes_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = tmp_path / "pgfresh"
    bundled.write_text("#!/bin/sh\nexit 9\n")
    bundled.chmod(0o755)
    monkeypatch.delenv("PGFRESH_BIN")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(Error, match="ended with exit code 9"):
        _server._start()
