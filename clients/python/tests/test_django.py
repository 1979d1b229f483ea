"""Runs Django's test runner with the engine, on examples/python-django."""

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

MIRRORED = """
from office.settings_for_tests import *

# Nothing listens on this port.
DATABASES["default"] |= {"HOST": "127.0.0.1", "PORT": 1}
DATABASES["replica"] = DATABASES["default"] | {"TEST": {"MIRROR": "default"}}
DATABASES["same"] = DATABASES["default"] | {}
"""
MIRRORED_TESTS = """
from django.test import TransactionTestCase
from tickets.models import Discount

class Mirrored(TransactionTestCase):
    databases = {"default", "replica", "same"}

    def one(self):
        before = Discount.objects.using("replica").count()
        Discount.objects.create(name="new", percent=1)
        for alias in "replica", "same":
            self.assertEqual(Discount.objects.using(alias).count(), before + 1)

    # Django empties the tables between the tests.
    test_first = test_second = one
"""


def manage(*arguments: str, main: tuple[str, ...] = ("manage.py",), **environment: str) -> str:
    """Runs `manage.py test` with the engine, checks that all tests pass, and returns the output."""
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


def test_migrated_template_is_not_migrated_again() -> None:
    output = manage()
    assert "No migrations to apply" in output
    assert "Destroying test database" in output


def test_forked_processes_get_clones() -> None:
    assert manage("--parallel", "2").count("Cloning test database") == 2


def test_spawned_processes_get_clones() -> None:
    output = manage("--parallel", "2", main=("-c", SPAWN))
    assert output.count("Cloning test database") == 2


def test_django_migrates_incomplete_template() -> None:
    arguments = ("--exclude-tag", "fresh")
    for parallel in ((), ("--parallel", "2")):
        output = manage(*arguments, *parallel, PGFRESH_TEMPLATE="none")
        assert "Applying tickets.0002_discounts... OK" in output


def test_mirrors_connect_to_leased_database(tmp_path: Path) -> None:
    (tmp_path / "mirrored_settings.py").write_text(MIRRORED)
    (tmp_path / "mirrored.py").write_text(MIRRORED_TESTS)
    path = os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    settings = "mirrored_settings"
    for parallel in ((), ("--parallel", "2")):
        output = manage("mirrored", *parallel, DJANGO_SETTINGS_MODULE=settings, PYTHONPATH=path)
        assert "Ran 2 tests" in output
