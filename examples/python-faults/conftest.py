"""The shop under test. SHOP=faulty selects the shop with bugs."""

import os
from collections.abc import Iterator
from importlib import import_module

import pytest

from mended import Shop


@pytest.fixture
def shop(fresh_url: str) -> Iterator[Shop]:
    chosen = import_module(os.environ.get("SHOP", "mended"))
    shop = chosen.Shop(fresh_url)
    yield shop
    shop.close()
