"""Claims that are dropped after an error, and whether something still refers to them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import Claim, State, open_state, retry
from support.concurrency.raising import raised

__all__ = ["is_gone_after"]

QUEUE = "queue"
METHODS = ("task_complete", "task_fail", "task_release", "task_renew", "lock_acquire")


async def _away(*_: Any) -> Any:
    raise StateUnavailableError("the server is away", in_doubt=False)


async def _end_block(_: State, claim: Claim) -> None:
    async with claim:
        raise ValueError


async def _lock(state: State, _: Claim) -> None:
    async with state.lock("lock"):
        pass


CALLS: dict[str, Callable[[State, Claim], Awaitable[object]]] = {
    "complete": lambda _, claim: claim.complete(),
    "fail": lambda _, claim: claim.fail("no"),
    "release": lambda _, claim: claim.release(),
    "extend": lambda _, claim: claim.extend(),
    "its block": _end_block,
    "complete_tasks": lambda state, claim: state.complete_tasks([(claim, None)]),
    "a lock": _lock,
}


async def is_gone_after(call: str) -> bool:
    """Whether a claim is freed that is dropped once a call has failed, as the server was away."""
    async with open_state("memory:") as state:
        await state.add_tasks(QUEUE, [1])
        claim = await state.claim_task(QUEUE)
        assert claim is not None
        known = weakref.ref(claim)
        gc.collect()
        gc.disable()
        try:
            with (
                mock.patch.object(retry, "_UNAVAILABLE_SECONDS", 0.1),
                mock.patch.multiple(state.backend, **dict.fromkeys(METHODS, _away)),
            ):
                assert await _fails(call, state, claim)
            del claim
            await asyncio.sleep(0)  # the tasks of its calls have ended
            return known() is None
        finally:
            gc.enable()


async def _fails(call: str, state: State, claim: Claim) -> bool:
    return await raised(CALLS[call](state, claim)) is not None
