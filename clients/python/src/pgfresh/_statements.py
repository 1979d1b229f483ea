"""Counts the statements that the clients of a database run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ._server import Error


@dataclass(frozen=True)
class Statement:
    """Statement with the totals of its runs."""

    text: str
    """Text of the statement in one line, with `?` in place of values."""
    count: int
    """Number of runs."""
    seconds: float
    """Total time in the database."""
    rows: int
    """Number of rows that the runs returned or changed."""


class Statements:
    """Statements that ran within a block. `len` returns the number of statements.

        with fresh_database.statements() as statements:
            list_orders(connection)
        assert len(statements) <= 3

    The object is empty until the block ends.
    """

    most_frequent: list[Statement]
    """Distinct statements, sorted by count in descending order."""
    seconds: float
    """Total time in the database."""
    complete: bool
    """Whether the counts and the list are complete. If the block resets the database, the
    statements before the reset are missing. pgfresh also lists only a limited number of distinct
    statements."""

    def __init__(self, read: Callable[[], Mapping[str, Any]]) -> None:
        self._read = read
        self._count = 0
        self.most_frequent = []
        self.seconds = 0.0
        self.complete = True

    def __enter__(self) -> Statements:
        self._before = self._read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.most_frequent, self.complete = [], False
        try:
            before, after = self._before, self._read()
        except Error:
            # Don't replace the exception that ended the block.
            if kind is None:
                raise
            return
        self.complete = bool(after["complete"])
        ran = _counts(after)
        ran.subtract(_counts(before))
        if after["resets"] != before["resets"] or min(ran.values(), default=0) < 0:
            # A reset within the block restarted the counts. Another client can have sent it.
            before, ran, self.complete = {}, _counts(after), False
        earlier = {line["statement"]: line for line in before.get("statements", ())}
        self._count = after["count"] - before.get("count", 0)
        self.seconds = after["seconds"] - before.get("seconds", 0.0)
        lines = {line["statement"]: line for line in after["statements"]}
        for text, count in ran.most_common():
            if count:
                line, was = lines[text], earlier.get(text, {"seconds": 0.0, "rows": 0})
                seconds, rows = line["seconds"] - was["seconds"], line["rows"] - was["rows"]
                self.most_frequent.append(Statement(text, count, seconds, rows))

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        lines = ", ".join(f"{line.count}x {line.text}" for line in self.most_frequent)
        return f"<{self._count} statements: {lines}>"


def _counts(measured: Mapping[str, Any]) -> Counter[str]:
    return Counter({line["statement"]: line["count"] for line in measured["statements"]})
