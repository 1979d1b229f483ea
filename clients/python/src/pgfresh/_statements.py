"""The statements that the clients of a database have run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Statement:
    """A statement, and what all its runs together took."""

    text: str
    """On one line, with `?` in place of values."""
    count: int
    """How often it ran."""
    seconds: float
    rows: int
    """Rows that it returned or changed."""


class Statements:
    """The statements that ran within a block; its length is how many they were.

        with fresh_database.statements() as statements:
            list_orders(connection)
        assert len(statements) <= 3

    It is empty until the block has ended.
    """

    most_frequent: list[Statement]
    """Each statement once, those that ran most often first."""
    seconds: float
    """How long all took together."""
    complete: bool
    """Whether all statements are counted and listed: very many different ones are not listed, and
    those before a reset within the block are not counted."""

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
        if kind is not None:
            return
        before, after = self._before, self._read()
        self.complete = bool(after["complete"])
        ran = _counts(after)
        ran.subtract(_counts(before))
        if after["resets"] != before["resets"] or min(ran.values(), default=0) < 0:
            # The database was reset in between, by this object or in another way.
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


def _counts(told: Mapping[str, Any]) -> Counter[str]:
    return Counter({line["statement"]: line["count"] for line in told["statements"]})
