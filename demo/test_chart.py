"""Tests of the table and its bars."""

import pytest
from chart import ASCII, BAR, BLOCKS, WIDTH, Block, Row, bar, draw, ink, seconds


def row(label="pgfresh", test=0.01, python=0.002, suite=0.2, is_estimate=False):
    return Row(label, test, python, suite, is_estimate)


@pytest.mark.parametrize(
    ("time", "text"),
    [(0.0004, "0.4 ms"), (0.00994, "9.9 ms"), (0.00999, "10 ms"), (0.4, "400 ms"), (12.34, "12.3 s"), (123.4, "123 s")],
)
def test_durations_have_a_unit(time, text):
    assert seconds(time) == text


def test_lines_fit_80_columns():
    rows = [row("migrate each time", 99.94, 90, 9999, True), row("TRUNCATE", 99.9, 1, 999), row()]
    lines = draw([Block("disk, 2 workers", rows)], BLOCKS)
    assert max(map(len, lines)) == WIDTH


def test_gain_is_the_ratio_to_the_last_row():
    lines = draw([Block("RAM", [row("TRUNCATE", 0.05), row("DELETE", 0.005), row()])], BLOCKS)
    assert ["5.0 ×" in line for line in lines].count(True) == 1
    assert ["0.5 ×" in line for line in lines].count(True) == 1
    assert "×" not in lines[-1]


def test_bar_shows_both_parts():
    assert bar(row(test=0.01, python=0.004), 0.001, BLOCKS) == "▒▒▒▒██████"
    assert bar(row(test=0.0001, python=0), 0.001, BLOCKS) == "█"


def test_bar_beyond_the_scale_is_cut():
    drawn = bar(row(test=1, python=0), 0.001, BLOCKS)
    assert len(drawn) == BAR
    assert drawn.endswith("»")


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", BLOCKS), ("ascii", ASCII), (None, ASCII), ("?", ASCII)])
def test_ink_suits_the_encoding(encoding, expected):
    assert ink(encoding) is expected
