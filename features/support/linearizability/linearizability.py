"""Is a history of concurrent operations linearizable?

An operation takes effect at one moment between its call and its answer; a history is linearizable
if there are such moments, so that one after the other the operations have the answers that they
had. Found out by Wing and Gong's search (Journal of Parallel and Distributed Computing 17, 1993):
of the operations that no other one was over before, one must have been the first; try each. With
Lowe's addition (Concurrency and Computation 29, 2017): the same operations done, the same state
reached, is tried once. Keys are looked at one by one, as Herlihy and Wing have shown to be enough.

An operation in doubt (cancelled, or never answered) has taken effect at some moment after its
call, however late, or never.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

__all__ = ["Operation", "Step", "keys_not_linearizable", "linearization"]

Step = Callable[[Any, "Operation"], "Hashable | None"]


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client has done.

    Attributes:
        key: Of what.
        name: The method.
        arguments: After the key.
        answer: What it returned; meaningless if it is in doubt.
        called: When it was called.
        answered: When it returned, on the same clock; infinity: it is in doubt.
    """

    key: str
    name: str
    arguments: tuple[Any, ...]
    answer: Any
    called: float
    answered: float = inf

    @property
    def in_doubt(self) -> bool:
        return self.answered == inf


def keys_not_linearizable(
    history: Iterable[Operation], model_of: Callable[[str], tuple[Hashable, Step]]
) -> dict[str, list[Operation]]:
    """The keys whose operations have no order, and those operations."""
    by_key: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    return {
        key: operations
        for key, operations in by_key.items()
        if linearization(operations, *model_of(key)) is None
    }


def linearization(
    history: Iterable[Operation], initial: Hashable, step: Step
) -> list[Operation] | None:
    """Return an order in which the operations may have taken effect; None if there is none.

    Args:
        history: The operations on one key.
        initial: The state before all of them.
        step: The state after an operation, or None where its answer cannot be. In doubt an
            operation has no answer: the state after it is wanted, if it takes effect.
    """
    operations = sorted(history, key=lambda operation: operation.called)
    required = sum(1 << i for i, operation in enumerate(operations) if not operation.in_doubt)
    start = (0, initial)
    came_from: dict[tuple[int, Hashable], tuple[tuple[int, Hashable], Operation] | None] = {
        start: None
    }
    to_try = [start]
    while to_try:
        node = to_try.pop()
        done, state = node
        if done & required == required:
            return _path(came_from, node)
        # Tried last in, first out: what was over first, first; what is in doubt, last.
        for i in sorted(_possibly_next(operations, done), key=lambda i: -operations[i].answered):
            after = step(state, operations[i])
            if after is None or (operations[i].in_doubt and after == state):
                continue  # it cannot be the next one, or need not be one at all
            following = (done | 1 << i, after)
            if following not in came_from:
                came_from[following] = node, operations[i]
                to_try.append(following)
    return None


def _possibly_next(operations: list[Operation], done: int) -> Iterator[int]:
    """Those that were called before any that is not done was answered."""
    first_answer = inf
    # From the lowest bit that is not set.
    for i in range((~done & done + 1).bit_length() - 1, len(operations)):
        if operations[i].called > first_answer:
            return
        if not done >> i & 1:
            first_answer = min(first_answer, operations[i].answered)
            yield i


def _path(came_from: Any, node: Any) -> list[Operation]:
    path = []
    while came_from[node] is not None:
        node, operation = came_from[node]
        path.append(operation)
    return path[::-1]
