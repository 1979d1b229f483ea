"""Servers of the demo: PostgreSQL as initdb makes it, and pgfresh. They end with the demo, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cleanups import SHOP

CLEAN = Path(__file__).with_name("clean.sh")

# Prints its environment, and ends with its standard input.
HOLD = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"


class ServerError(Exception):
    """A server did not start."""


class Stock:
    """PostgreSQL server as initdb makes it. It differs from the defaults in where it listens, which costs no time."""

    def __init__(self, programs: Path, account: str, place: Path, preload: dict[str, str]) -> None:
        self._programs = programs
        self._account = account
        self._preload = preload
        began = time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="pgfresh-demo.", dir=place))
        # The path of a socket must be short, so it is not in that folder.
        self._socket = Path(tempfile.mkdtemp(prefix="pgfresh-demo."))
        self._cleaner = subprocess.Popen(
            ["sh", CLEAN, self._folder, self._socket],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._program: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://postgres@/{{}}?host={self._socket}"
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        self.start_time = time.monotonic() - began

    def _start(self) -> None:
        for folder in (self._folder, self._socket):
            shutil.chown(folder, self._account)
        data = self._folder / "data"
        self._log = (self._folder / "log").open("w+b")
        self._program = self._run("initdb", "-D", data, "-U", "postgres", "--auth=trust")
        if self._program.wait() != 0:
            raise self._error("initdb failed")
        self._program = self._run(
            "postgres",
            "-D",
            data,
            "-c",
            "listen_addresses=",
            "-c",
            f"unix_socket_directories={self._socket}",
            preload=self._preload,
        )
        while not self._is_ready(data / "postmaster.pid"):
            if self._program.poll() is not None:
                raise self._error("the stock server ended")
            time.sleep(0.01)

    @staticmethod
    def _is_ready(pid_file: Path) -> bool:
        try:
            return pid_file.read_text().rstrip().endswith("ready")
        except FileNotFoundError:
            return False

    def _run(
        self, program: str, *arguments: str | Path, preload: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a program that ends with the demo, as an account that may run PostgreSQL."""
        wrapper = ["setpriv", "--pdeathsig", "QUIT"]
        if os.getuid() == 0:
            wrapper += ["--reuid", self._account, "--regid", self._account, "--init-groups"]
        return subprocess.Popen(
            [*wrapper, "--", self._programs / program, *arguments],
            cwd="/",
            env=os.environ | (preload or {}),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def _error(self, message: str) -> ServerError:
        self._log.seek(0)
        return ServerError(f"{message}, in {self._folder}:\n{self._log.read().decode(errors='replace')}")

    def stop(self) -> None:
        """Ends the server and removes its files."""
        if self._program:
            self._program.send_signal(signal.SIGQUIT)
            self._program.wait()
        self._cleaner.stdin.close()
        self._cleaner.wait()


class Pgfresh:
    """Server of `pgfresh run`."""

    def __init__(self, binary: Path, place: str, preload: dict[str, str]) -> None:
        began = time.monotonic()
        self._process = subprocess.Popen(
            [binary, "run", "--quiet", "--place", place.lower(), "--", sys.executable, "-c", HOLD],
            cwd=SHOP,
            env=os.environ | preload,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            raise ServerError('"pgfresh run" did not start its command')
        self.environment: dict[str, str] = json.loads(answer)
        self.start_time = time.monotonic() - began

    def stop(self) -> None:
        """Ends the server, and waits until pgfresh has removed its files."""
        self._process.stdin.close()
        self._process.wait()
