"""Loops of other makers, and one of asyncio to compare them with."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable

from behave.runner import Context

__all__ = ["factory_of"]


def factory_of(context: Context, kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop of ``kind``; skips the scenario where that is not installed."""
    if kind == "asyncio":
        return asyncio.new_event_loop
    if importlib.util.find_spec(kind) is None:
        context.scenario.skip(f"{kind} has no wheel for this Python")
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(kind).new_event_loop
    return factory
