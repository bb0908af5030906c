"""Clients of one store that do what they like at the same time, and write down what they saw.

``python -m support.linearizability.histories URL SEED OPERATIONS`` is one client in a process
of its own. It says
``ready``; begins when it reads a line; says ``half`` after so many operations; goes on until its
standard input ends; does as many again, and prints its history as JSON. It says ``unanswered``
whenever a call is. Moments are of the monotonic clock of the machine, which its processes share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import select
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import astuple, dataclass
from time import monotonic
from typing import Any

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import State, open_state
from support.concurrency.waiting import LIMIT
from support.linearizability.linear_models import REGISTERS
from support.linearizability.linearizability import Operation

__all__ = ["Client", "Signals", "be_a_client", "read"]

# What is done to a register, what to a counter; and that often.
ON_REGISTER = ("get", "get", "set", "compare_and_set", "compare_and_set", "delete")
ON_COUNTER = ("get", "increment_counter", "increment_counter")
KEYS = (*REGISTERS, "counter 1", "counter 2")
# Of so many calls one is cancelled, after so many turns of the loop; of each client so many at
# most, as each that is in doubt doubles what the checker has to try before it can say no.
ONE_OF = 25
CANCELLED = 6
TURNS = (0, 0, 0, 1, 2, 3, 5, 8, 13)


class Client:
    """One client, which does one thing at a time. Confined to its loop.

    Args:
        state: What it works on: a `State`, or what has the same methods.
        seed: Of what it does.
        unanswered: Called when the server has given no answer.
        during: Called in each operation, once its beginning is written down.
        cancels: How many of its calls it cancels on the way.
    """

    def __init__(
        self,
        state: Any,
        seed: int,
        unanswered: Callable[[], object] = lambda: None,
        during: Callable[[], object] = lambda: None,
        *,
        cancels: int = CANCELLED,
    ) -> None:
        self.history: list[Operation] = []
        self._state = state
        self._seed = seed
        self._unanswered = unanswered
        self._during = during
        self._random = random.Random(seed)
        self._cancels = cancels
        self._versions = dict.fromkeys(REGISTERS, 0)  # that it was told last

    async def act(self) -> None:
        """Do something."""
        key = self._random.choice(KEYS)
        name = self._random.choice(ON_REGISTER if key in REGISTERS else ON_COUNTER)
        unique = f"{self._seed}:{len(self.history)}"
        arguments: dict[str, tuple[Any, ...]] = {
            "set": (unique,),
            "compare_and_set": (unique, self._versions.get(key)),
            "increment_counter": (self._random.randint(1, 1_000),),
        }
        answer = await self.call(key, name, *arguments.get(name, ()))
        if key in REGISTERS and answer is not None and name in ("get", "set"):
            self._versions[key] = answer if name == "set" else answer[1]

    async def call(self, key: str, name: str, *arguments: Any) -> Any:
        """Call a method and write it down; None where there is no answer."""
        called = monotonic()
        self._during()
        try:
            answer = await self._or_cancel(getattr(self._state, name)(key, *arguments))
        except (StateUnavailableError, asyncio.CancelledError) as error:
            # A read without an answer says nothing, nor does what had no effect.
            if name != "get" and getattr(error, "in_doubt", True):
                self.history.append(Operation(key, name, arguments, None, called))
            if isinstance(error, StateUnavailableError):
                self._unanswered()
            return None
        self.history.append(Operation(key, name, arguments, answer, called, monotonic()))
        return answer

    async def _or_cancel(self, call: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(call)
        if self._cancels and self._random.randrange(ONE_OF) == 0:
            self._cancels -= 1
            for _ in range(self._random.choice(TURNS)):
                await asyncio.sleep(0)
            task.cancel()
        return await task


@dataclass(frozen=True)
class Signals:
    """How clients are told to begin and to come to an end. Each call may block."""

    begin: Callable[[], object]
    half: Callable[[], object] = lambda: None
    may_end: Callable[[], bool] = lambda: True
    unanswered: Callable[[], object] = lambda: None
    during: Callable[[], object] = lambda: None


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[State]:
    """Open the state, also where a busy server takes longer than the limit of the URL."""
    give_up = monotonic() + LIMIT
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                state = await stack.enter_async_context(open_state(url))
                break
            except StateUnavailableError:
                if monotonic() > give_up:
                    raise
        yield state


async def be_a_client(url: str, seed: int, operations: int, signals: Signals) -> list[Operation]:
    """Do twice as many operations, or more: as long as the signals say."""
    async with _opened(url) as state:
        client = Client(state, seed, signals.unanswered, signals.during)
        signals.begin()
        for _ in range(operations):
            await client.act()
        signals.half()
        while not signals.may_end():
            await client.act()
        for _ in range(operations):
            await client.act()
        return client.history


# -- in a process of its own -----------------------------------------------------------------------


def read(text: str) -> list[Operation]:
    """The history that a process has printed."""
    return [
        Operation(key, name, tuple(arguments), answer, *moments)
        for key, name, arguments, answer, *moments in json.loads(text)
    ]


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _begin() -> None:
    _say("ready")
    os.read(0, 1)


def _may_end() -> bool:
    return bool(select.select([0], [], [], 0)[0])  # there is nothing to read but the end


def main(url: str, seed: str, operations: str) -> None:
    signals = Signals(_begin, lambda: _say("half"), _may_end, lambda: _say("unanswered"))
    history = asyncio.run(be_a_client(url, int(seed), int(operations), signals))
    _say(json.dumps([astuple(operation) for operation in history]))


if __name__ == "__main__":
    main(*sys.argv[1:])
