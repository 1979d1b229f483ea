"""Tests that both shops pass while the database behaves."""

from mended import Shop


def test_pay(shop: Shop) -> None:
    assert shop.pay("A-1", 4200) == "A-1: thank you"


def test_place(shop: Shop) -> None:
    assert shop.place("A-3", "lamp") == "A-3: we have your order"


def test_ship(shop: Shop) -> None:
    assert shop.ship("A-2") == "A-2: on its way"


def test_wait_until_paid(shop: Shop) -> None:
    assert shop.wait_until_paid("A-2") == "A-2: paid"


def test_set_price(shop: Shop) -> None:
    assert shop.set_price("chair", 8900) == 8900
