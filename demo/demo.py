"""Times one suite with five ways of cleaning up between tests. `scripts/demo` prepares and starts it."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import chart
import psycopg
import suite
from cleanups import CLEANUPS, FEW, Cleanup, Fresh, Migrated, migrate
from servers import Pgfresh, ServerError, Stock
from suite import SuiteError, Times

WORKERS = (1, 2)

ROOM = 400_000_000
"""Bytes that the servers of one place take at most."""


class Place:
    """Disk or RAM, with a stock server and one of pgfresh."""

    def __init__(self, name: str, folder: Path, options: argparse.Namespace, running: ExitStack) -> None:
        self.name = name
        self.tests = None
        preload = {}
        if options.slow_flush:
            self.tests = FEW
            preload = {"LD_PRELOAD": str(options.slow_flush), "SLOW_FLUSH_MS": str(options.flush_ms)}
        self.stock = Stock(options.programs, options.account, folder, preload)
        running.callback(self.stock.stop)
        self._prepare_databases()
        self.pgfresh = Pgfresh(options.pgfresh, name, preload)
        running.callback(self.pgfresh.stop)

    def _prepare_databases(self) -> None:
        """Migrates a template once, and copies it for the workers that empty tables."""
        with psycopg.connect(self.stock.url.format("postgres"), autocommit=True) as admin:
            self.version = admin.info.parameter_status("server_version").split()[0]
            admin.execute("CREATE DATABASE shop_template")
            began = time.monotonic()
            migrate(self.stock.url.format("shop_template"))
            self.migration_time = time.monotonic() - began
            for worker in range(max(WORKERS)):
                admin.execute(f"CREATE DATABASE shop_{worker} TEMPLATE shop_template")

    def run(self, cleanup: type[Cleanup], workers: int) -> Times:
        server = self.pgfresh.environment if cleanup is Fresh else self.stock.url
        return suite.run(cleanup, workers, server, cleanup.tests or self.tests)


Measured = dict[tuple[Place, int, type[Cleanup]], list[Times]]
"""Times of each round, by place, number of workers, and cleanup."""


def measure(places: list[Place], rounds: int) -> Measured:
    """Runs the suite with all cleanups, round after round. Each round begins with another one."""
    measured: Measured = {}
    for number in range(rounds):
        print(f"Round {number + 1} of {rounds} ", end="", flush=True)
        for cleanup in CLEANUPS[number:] + CLEANUPS[:number]:
            for place in places:
                for workers in WORKERS:
                    measured.setdefault((place, workers, cleanup), []).append(place.run(cleanup, workers))
                    print(".", end="", flush=True)
        print()
    return measured


def blocks(places: list[Place], measured: Measured) -> list[chart.Block]:
    return [
        chart.Block(
            f"{place.name}, {workers} worker{'s' if workers > 1 else ''}",
            [row(cleanup, measured[place, workers, cleanup]) for cleanup in CLEANUPS],
        )
        for place in places
        for workers in WORKERS
    ]


def row(cleanup: type[Cleanup], rounds: list[Times]) -> chart.Row:
    return chart.Row(
        label=cleanup.label,
        test=median(times.test for times in rounds),
        python=median(times.python for times in rounds),
        suite=median(times.suite for times in rounds),
        is_estimate=rounds[0].measured < rounds[0].tests,
    )


def heading(places: list[Place], options: argparse.Namespace, tests: int) -> str:
    system = subprocess.run(
        ["df", "--output=fstype", options.disk], check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    disk = f"The disk is {system}."
    if options.slow_flush:
        disk = (
            f"The slow disk is simulated on {system}: a library makes each fsync and fdatasync of the servers take "
            f"{options.flush_ms} ms longer, one after the other, as on a hard disk."
        )
    return (
        f"{tests} short tests on the 42 tables of examples/python-shop, PostgreSQL {places[0].version}. {disk} "
        "gain: a test takes so many times longer than with pgfresh."
    )


def notes(places: list[Place], measured: Measured, rounds: int) -> Iterator[str]:
    """Says which part is not the database's, what the table leaves out, and how well to trust it."""
    text = chart.seconds
    runs = [times for group in measured.values() for times in group]
    python = [
        median(times.python for times in group)
        for (_, _, cleanup), group in measured.items()
        if cleanup is not Migrated
    ]
    yield (
        f"Python takes {text(min(python))} to {text(max(python))} of each test, and most of a migration. "
        "No database can shorten that part. An ORM makes it longer, and the gain smaller."
    )
    yield (
        f"Not in the table: {text(median(times.runner for times in runs))} in which pytest collects the tests; "
        f"{text(median(place.migration_time for place in places))} in which each run migrates a database once, "
        "which pgfresh has in its cache; and the start of a server, "
        f"{text(median(place.stock.start_time for place in places))} for initdb and PostgreSQL, "
        f"{text(median(place.pgfresh.start_time for place in places))} for pgfresh."
    )
    yield (
        "DELETE and TRUNCATE clean the tables that they name, and DELETE restarts no sequences. CREATE DATABASE and pgfresh "
        "undo all changes in the database. Both servers run the same programs: one with PostgreSQL's default settings, pgfresh's without fsync."
    )
    tests = runs[0].tests
    yield f"Medians of {rounds} rounds. ~ is an estimate from {FEW} of the {tests} tests."
    load, processors = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > processors + max(WORKERS):
        yield (
            f"The machine was busy: a load of {load:.0f} on {processors} processors. "
            "The times are too long, and the gains may be off."
        )


def choose_places(options: argparse.Namespace) -> dict[str, Path]:
    places = {"disk": options.disk}
    if options.slow_flush:
        return places
    if shutil.disk_usage(options.ram).free > ROOM:
        places["RAM"] = options.ram
    else:
        print(f"{options.ram} has less than {ROOM / 1e6:.0f} MB free, so the demo leaves out RAM.")
    return places


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pgfresh", type=Path, required=True, help="the binary")
    parser.add_argument("--programs", type=Path, required=True, help="folder of postgres and initdb")
    parser.add_argument("--account", required=True, help="account that may run postgres")
    parser.add_argument("--disk", type=Path, required=True, help="folder on the disk")
    parser.add_argument("--ram", type=Path, default="/dev/shm", help="folder in RAM")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each suite")
    parser.add_argument("--slow-flush", type=Path, help="library that delays each flush")
    parser.add_argument("--flush-ms", type=int, default=8, help="delay of each flush")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    with ExitStack() as running:
        running.callback(suite.stop_workers)
        print("Starting the servers", flush=True)
        places = [Place(name, folder, options, running) for name, folder in choose_places(options).items()]
        measured = measure(places, options.rounds)
        print()
        print(textwrap.fill(heading(places, options, next(iter(measured.values()))[0].tests), chart.WIDTH))
        print("\n".join(chart.draw(blocks(places, measured), chart.ink(sys.stdout.encoding))))
        for note in notes(places, measured, options.rounds):
            print()
            print(textwrap.fill(note, chart.WIDTH))


def end(number: int, _frame: object) -> None:
    # Everything below `main` cleans up on its way out.
    sys.exit(128 + number)


if __name__ == "__main__":
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        main()
    except (ServerError, SuiteError, psycopg.Error, OSError) as error:
        sys.exit(f"make demo: {error}")
