"""Table and bars of the demo, in 80 columns of text."""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 80
LABEL, TEST, SUITE, GAIN = 19, 9, 9, 8
BAR = WIDTH - LABEL - TEST - SUITE - GAIN - 2


@dataclass
class Row:
    """One way of cleaning up."""

    label: str
    test: float
    python: float
    """Part of `test` in which Python works."""
    suite: float
    is_estimate: bool
    """Whether `suite` is an estimate from some tests."""


@dataclass
class Block:
    """Rows of one place and number of workers. The last row is that of pgfresh."""

    title: str
    rows: list[Row]


@dataclass
class Ink:
    """Characters of bars."""

    python: str
    database: str
    cut: str
    times: str


BLOCKS = Ink("▒", "█", "»", "×")
ASCII = Ink("=", "#", ">", "x")


def ink(encoding: str | None) -> Ink:
    """Returns the characters that a terminal or a file with this encoding can show."""
    try:
        "▒█»×".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def draw(blocks: list[Block], ink: Ink) -> list[str]:
    """Returns the lines of all blocks. They have one scale, on which estimates may be cut if there are other rows."""
    rows = [row for block in blocks for row in block.rows]
    scale = max(row.test for row in [row for row in rows if not row.is_estimate] or rows) / BAR
    lines = ["", f"{ink.python} Python  {ink.database} database  {ink.cut} longer than fits"]
    for block in blocks:
        header = f"{block.title:<{LABEL}}{'a test':>{TEST}}{'suite':>{SUITE}}{'gain':>{GAIN}}"
        lines += ["", header]
        ours = block.rows[-1]
        for row in block.rows:
            gain = "" if row is ours else f"{row.test / ours.test:.1f} {ink.times}"
            suite = ("~" if row.is_estimate else "") + seconds(row.suite)
            figures = f"  {row.label:<{LABEL - 2}}{seconds(row.test):>{TEST}}{suite:>{SUITE}}{gain:>{GAIN}}"
            lines.append(f"{figures}  {bar(row, scale, ink)}")
    return lines


def bar(row: Row, scale: float, ink: Ink) -> str:
    """Returns the bar of a test: first Python's part, then the database's."""
    whole = max(round(row.test / scale), 1)
    python = min(round(row.python / scale), whole)
    drawn = ink.python * python + ink.database * (whole - python)
    return drawn if whole <= BAR else drawn[: BAR - 1] + ink.cut


def seconds(time: float) -> str:
    """Returns a duration with three digits at most, and its unit."""
    if time < 0.00995:
        return f"{time * 1000:.1f} ms"
    if time < 1:
        return f"{time * 1000:.0f} ms"
    return f"{time:.1f} s" if time < 100 else f"{time:.0f} s"
