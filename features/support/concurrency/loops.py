"""Loops of other makers, one of asyncio to compare them with, and one whose callbacks count."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from behave.runner import Context

__all__ = ["calling_before_callback", "factory_of"]


def factory_of(context: Context, kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop of ``kind``; skips the scenario where that is not installed."""
    if kind == "asyncio":
        return asyncio.new_event_loop
    if importlib.util.find_spec(kind) is None:
        context.scenario.skip(f"{kind} has no wheel for this Python")
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(kind).new_event_loop
    return factory


@contextlib.contextmanager
def calling_before_callback(number: int, fn: Callable[[], object]) -> Iterator[list[object]]:
    """Have the running loop call ``fn`` before one of the callbacks that it is given from now on.

    What is yielded will have what it returned. Turns of a loop measure nothing where it waits for a
    thread: how many of them pass meanwhile depends on the machine, and on whether there is a GIL.
    """
    loop, returned, given = asyncio.get_running_loop(), list[object](), itertools.count()
    call_soon = loop.call_soon

    def counted(callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.Handle:
        if next(given) == number:
            call_soon(lambda: returned.append(fn()))
        return call_soon(callback, *args, **options)

    # Threads come in by call_soon_threadsafe, which is not counted: what follows from it is.
    with mock.patch.object(loop, "call_soon", counted):
        yield returned
