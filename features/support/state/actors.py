"""Actors that end with their scenario, what they log, and what their observers are told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from behave.runner import Context

from rxlanggraph.state import StateActor
from support.concurrency.waiting import Gate

__all__ = ["Logged", "Told", "an_actor"]


def an_actor(context: Context, initial: Any, reducer: Callable[[Any, Any], Any]) -> None:
    context.actor = StateActor(initial, reducer)
    context.add_cleanup(lambda: context.actor and context.actor.close())


class Logged(logging.Handler):
    """What the actor logs, kept for the rest of the scenario and not shown."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        logger = logging.getLogger("rxlanggraph.actor")
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
