"""Runs the tests in forked workers, with one cleanup, and times each test."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import BinaryIO

import psycopg
import pytest
from cleanups import Cleanup

TESTS = Path(__file__).resolve().parent / "tests"

Server = str | dict[str, str]
"""URL of a stock server, or the environment within `pgfresh run`."""

_workers: list[int] = []
"""Processes of the run."""


class SuiteError(Exception):
    """The suite did not pass, so its times say nothing."""


@dataclass
class Times:
    """Times of one run of the suite, in seconds. They leave out the start of pytest."""

    tests: int
    """Tests of the whole suite."""
    measured: int
    """Tests that ran: fewer than all if each migrates."""
    test: float
    """Median of the tests, with their cleanup."""
    python: float
    """Median of the processor time that Python took for a test."""
    runner: float
    """Start of pytest: collection, without imports."""
    elapsed: float
    """From the begin of the first test to the end of the last."""

    @property
    def suite(self) -> float:
        """Time of the whole suite, an estimate if only some tests ran."""
        return self.elapsed * self.tests / self.measured


class Stopwatch:
    """Plugin of pytest: gives a worker its share of the tests and times them."""

    def __init__(self, share: slice) -> None:
        self.share = share
        self.all = 0
        self.began = self.ended = 0.0
        self.tests: list[float] = []
        self.python: list[float] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.all = len(items)
        items[:] = items[self.share]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        wall, processor = time.monotonic(), time.process_time()
        result = yield
        self.ended = time.monotonic()
        self.began = self.began or wall
        self.tests.append(self.ended - wall)
        self.python.append(time.process_time() - processor)
        return result


class Databases:
    """Plugin of pytest: gives each test a connection to a clean database."""

    def __init__(self, cleanup: Cleanup) -> None:
        self._cleanup = cleanup

    @pytest.fixture
    def db(self) -> Iterator[psycopg.Connection]:
        with self._cleanup.connection() as connection:
            yield connection


def run(cleanup: type[Cleanup], workers: int, server: Server, at_most: int | None) -> Times:
    """Runs the suite once in so many workers, or at most so many of its tests."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        pipes = [
            _start(cleanup, server, Stopwatch(slice(worker, at_most, workers)), worker, output.fileno())
            for worker in range(workers)
        ]
        reports = []
        for pipe in pipes:
            with pipe:
                reports.append(pipe.read())
        stop_workers()
        if not all(reports):
            output.seek(0)
            raise SuiteError(f"the suite failed with {cleanup.label}:\n{output.read().decode()}")
    parts = [json.loads(report) for report in reports]
    return Times(
        tests=parts[0]["all"],
        measured=sum(len(part["tests"]) for part in parts),
        test=median(test for part in parts for test in part["tests"]),
        python=median(test for part in parts for test in part["python"]),
        runner=min(part["began"] for part in parts) - started,
        elapsed=max(part["ended"] for part in parts) - min(part["began"] for part in parts),
    )


def stop_workers() -> None:
    """Ends the workers that are left."""
    while _workers:
        pid = _workers.pop()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _start(cleanup: type[Cleanup], server: Server, stopwatch: Stopwatch, worker: int, output: int) -> BinaryIO:
    """Forks a worker, and returns the pipe with its report, which is empty if a test failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        _workers.append(pid)
        os.close(writing)
        return os.fdopen(reading, "rb")
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.write(writing, _work(cleanup, server, stopwatch, worker))
    finally:
        os._exit(0)


def _work(cleanup: type[Cleanup], server: Server, stopwatch: Stopwatch, worker: int) -> bytes:
    if isinstance(server, dict):
        os.environ.update(server)
        server = ""
    os.chdir(TESTS)
    plugins = [stopwatch, Databases(cleanup(server, worker))]
    if pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:pgfresh"], plugins=plugins) != pytest.ExitCode.OK:
        return b""
    return json.dumps({key: getattr(stopwatch, key) for key in ("all", "tests", "python", "began", "ended")}).encode()
