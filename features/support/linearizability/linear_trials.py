"""Histories to try the checker on: written by hand, and made up by chance."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Iterator
from itertools import combinations, permutations
from math import inf

from support.linearizability.linearizability import Operation, Step

__all__ = ["by_trying_all_orders", "made_up", "written"]


def written(key: str, lines: str) -> list[Operation]:
    """Read lines such as ``1-4 set "a" -> 7``; ``1-?`` is in doubt, and has no answer."""
    return [_written(key, line) for line in lines.splitlines()]


def _written(key: str, line: str) -> Operation:
    call, _, answer = line.partition(" -> ")
    moments, name, *arguments = call.split()
    called, answered = moments.split("-")
    return Operation(
        key,
        name,
        tuple(map(json.loads, arguments)),
        json.loads(answer or "null"),
        float(called),
        inf if answered == "?" else float(answered),
    )


def made_up(count: int, seed: int) -> Iterator[list[Operation]]:
    """Short histories of a counter, some linearizable, some not."""
    chance = random.Random(seed)
    for _ in range(count):
        moments = chance.sample(range(100), 12)
        pairs = zip(moments[::2], moments[1::2], strict=True)
        yield [_by_chance(chance, min(pair), max(pair)) for pair in pairs]


def _by_chance(chance: random.Random, called: float, answered: float) -> Operation:
    if chance.random() < 0.4:
        return Operation("counter", "get", (), [chance.randint(0, 3), 1], called, answered)
    answer = chance.randint(1, 3)
    in_doubt = chance.random() < 0.3
    end = inf if in_doubt else answered
    return Operation("counter", "increment_counter", (1,), answer, called, end)


def by_trying_all_orders(history: list[Operation], initial: Hashable, step: Step) -> bool:
    """Whether any order of all that were answered, and of any in doubt, has the answers."""
    answered = [operation for operation in history if not operation.in_doubt]
    in_doubt = [operation for operation in history if operation.in_doubt]
    return any(
        _in_time(order) and _has_answers(order, initial, step)
        for number in range(len(in_doubt) + 1)
        for effective in combinations(in_doubt, number)
        for order in permutations([*answered, *effective])
    )


def _in_time(order: tuple[Operation, ...]) -> bool:
    return all(earlier.called <= later.answered for earlier, later in combinations(order, 2))


def _has_answers(order: tuple[Operation, ...], initial: Hashable, step: Step) -> bool:
    state: Hashable | None = initial
    for operation in order:
        if state is not None:
            state = step(state, operation)
    return state is not None
