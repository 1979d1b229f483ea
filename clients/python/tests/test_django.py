"""Django's test runner with the engine, on examples/python-django."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "python-django"
SPAWN = """
import multiprocessing, sys
from django.core.management import execute_from_command_line

multiprocessing.set_start_method("spawn")
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


def manage(*arguments: str, main: tuple[str, ...] = ("manage.py",), **environment: str) -> str:
    """What `manage.py test` writes, with the engine of pgfresh, when all its tests have passed."""
    settings = {"DJANGO_SETTINGS_MODULE": "office.settings_for_tests"}
    done = subprocess.run(
        [sys.executable, *main, "test", "-v2", *arguments],
        cwd=EXAMPLE,
        env=os.environ | settings | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_migrated_template_is_taken_as_it_is() -> None:
    said = manage()
    assert "No migrations to apply" in said
    assert "Destroying test database" in said


def test_clones_for_processes_that_are_forked() -> None:
    assert manage("--parallel", "2").count("Cloning test database") == 2


def test_clones_for_processes_that_are_spawned() -> None:
    said = manage("--parallel", "2", main=("-c", SPAWN))
    assert said.count("Cloning test database") == 2


def test_what_the_template_lacks_is_migrated_and_then_kept_by_django_itself() -> None:
    arguments = ("--exclude-tag", "fresh")
    for parallel in ((), ("--parallel", "2")):
        said = manage(*arguments, *parallel, PGFRESH_TEMPLATE="none")
        assert "Applying tickets.0002_discounts... OK" in said
