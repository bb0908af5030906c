"""What one key does if nothing is concurrent: a register with versions, and a counter."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from support.linearizability.linearizability import Operation, Step

__all__ = ["REGISTERS", "Register", "count", "model_of", "register"]

# All other keys are counters.
REGISTERS = ("register 1", "register 2")


class Register(NamedTuple):
    """A value and its version.

    Attributes:
        value: None if there is no such key.
        version: 0 if there is no such key; None if no client knows it yet.
        highest: The highest version that any client knows: there is no way back.
    """

    value: object = None
    version: int | None = 0
    highest: int = 0


def model_of(key: str) -> tuple[Hashable, Step]:
    """The state before anything was done to ``key``, and what an operation makes of a state."""
    return (Register(), register) if key in REGISTERS else (0, count)


def register(state: Register, operation: Operation) -> Register | None:
    """``get``, ``set``, ``compare_and_set`` and ``delete``, as their methods are documented."""
    if operation.name == "get":
        return state if operation.in_doubt else _get(state, *operation.answer)
    if operation.name == "set":
        (value,) = operation.arguments
        version = None if operation.in_doubt else operation.answer
        return _written(state, value, version)
    if operation.name == "compare_and_set":
        value, expected = operation.arguments
        # A client that was told no version cannot have named it either.
        succeeds = state.version == expected
        after = _written(state, value, None) if succeeds else state
    else:
        succeeds = state.version != 0
        after = state._replace(value=None, version=0)
    return after if operation.in_doubt or operation.answer == succeeds else None


def _get(state: Register, value: object, version: int) -> Register | None:
    if state.version is None and value == state.value:
        return _written(state, value, version)
    return state if (value, version) == state[:2] else None


def _written(state: Register, value: object, version: int | None) -> Register | None:
    if version is None:
        return state._replace(value=value, version=None)
    return Register(value, version, version) if version > state.highest else None


def count(state: int, operation: Operation) -> int | None:
    """``increment_counter``, and ``get`` of what it has counted to."""
    if operation.name == "get":
        return state if operation.in_doubt or (operation.answer[0] or 0) == state else None
    (by,) = operation.arguments
    return state + by if operation.in_doubt or operation.answer == state + by else None
