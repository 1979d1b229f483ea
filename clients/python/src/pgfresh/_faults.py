"""Faults that a test requests for a database, and the state of these faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Moment = Literal[
    "commit",
    "before statement",
    "during statement",
    "after statement",
    "before commit",
    "after commit",
    "connect",
]
"""Moment when a fault happens."""

_CONNECTIONS = {"connection lost": "reset", "connection silent": "silent"}


@dataclass(frozen=True)
class FaultStatus:
    """Requested fault, with the statements that it hit."""

    text: str
    """Description of the fault: `40001 at commit`."""
    times: int
    """How often the fault is to fire."""
    fired: int
    """How often the fault has fired."""
    candidates: int
    """Number of statements, commits or connections that the fault could have hit."""
    statements: Sequence[str]
    """Statements that the fault hit, at most 100."""


def body(what: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a fault request."""
    if what in _CONNECTIONS:
        effect = {"connection": _CONNECTIONS[what]}
    else:
        effect = {} if what is None else {"error": what}
    return effect | {name: value for name, value in options.items() if value is not None}


def status(description: Mapping[str, Any]) -> FaultStatus:
    """Returns the fault that an HTTP API response describes."""
    return FaultStatus(
        description["fault"],
        description["times"],
        description["fired"],
        description["candidates"],
        tuple(description["statements"]),
    )


def unfired_message(answer: Mapping[str, Any]) -> str:
    """Returns a message about the faults in a response that never fired, or "" without them."""
    unfired = answer.get("unfired_faults", ())
    return "\n".join(f"fault did not fire: {fault}" for fault in unfired)
