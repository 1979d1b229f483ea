"""Tests that both shops pass as long as the database works normally."""

from mended import Shop


def test_pay(shop: Shop) -> None:
    assert shop.pay("Ann", 4200) == "Ann: thank you"


def test_place(shop: Shop) -> None:
    assert shop.place("Carl", "lamp") == "Carl: we have your order"


def test_ship(shop: Shop) -> None:
    assert shop.ship("Bob") == "Bob: on its way"


def test_wait_until_paid(shop: Shop) -> None:
    assert shop.wait_until_paid("Bob") == "Bob: paid"


def test_set_price(shop: Shop) -> None:
    assert shop.set_price("chair", 8900) == 8900
