"""Actors that end with their scenario, what they log, and what their observers are told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from behave.runner import Context

from rxlanggraph import actor as actor_module
from rxlanggraph.errors import StateClosedError
from rxlanggraph.state import StateActor
from support.concurrency.entering import Enterable
from support.concurrency.waiting import Gate

__all__ = ["ENTERABLE", "Logged", "Told", "an_actor"]


def an_actor(context: Context, initial: Any, reducer: Callable[[Any, Any], Any]) -> None:
    context.actor = StateActor(initial, reducer)
    context.add_cleanup(lambda: context.actor and context.actor.close())


class Logged(logging.Handler):
    """What the actor logs, kept for the rest of the scenario and not shown."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        logger = logging.getLogger("rxlanggraph")
        logger.addHandler(self)
        logger.propagate = False
        context.add_cleanup(logger.removeHandler, self)
        context.add_cleanup(setattr, logger, "propagate", True)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Told:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.states: list[Any] = []
        self.complete = Gate()

    def subscribe_to(self, actor: StateActor[Any, Any]) -> Any:
        return actor.states.subscribe(self.states.append, on_completed=self.complete.open)


class Counted:
    """An actor that counts, and what it has been sent."""

    def __init__(self, used: bool) -> None:
        self.actor: StateActor[int, int] = StateActor(0, lambda state, by: state + by)
        self.accepted = 0
        self.threads: set[int] = set()
        if used:
            self.send()

    def send(self) -> None:
        try:
            self.actor.send(1)
        except StateClosedError:
            return
        self.accepted += 1

    def ask(self) -> None:
        self.actor.ask(1)
        self.accepted += 1

    def subscribe(self) -> None:
        self.actor.states.subscribe(lambda _: self.threads.add(threading.get_ident()))

    def check(self) -> None:
        if "open" in repr(self.actor):
            self.subscribe()
            self.send()
        self.actor.close()
        assert self.actor.state == self.accepted, (self.actor.state, self.accepted)
        assert len(self.threads) <= 1, "two threads have applied commands"
        left = [each for each in threading.enumerate() if each.name == self.actor.name]
        assert not left, left


_FIRST = ("sending the first command", "subscribing")
ENTERABLE = Enterable(
    files={actor_module.__file__},
    make=lambda inside: Counted(inside not in _FIRST),
    discard=lambda counted: counted.actor.close(),
    entries={"sends": (Counted.send, Counted.check)},
    operations={
        "sending the first command": Counted.send,
        "sending another command": Counted.send,
        "asking": Counted.ask,
        "subscribing": Counted.subscribe,
        "closing": lambda counted: counted.actor.close(),
    },
)
