"""Pace: active nodes wait until the chunks of their run are taken.

LangGraph suspends a graph only between its steps. What breaks without this: within a step, a chat
model or a subgraph continues, and its chunks are buffered without a limit. LangChain awaits its
callbacks, so a callback that waits holds up the model or subgraph that calls it. Code that writes
to LangGraph's stream writer without calling anything of LangChain's cannot be held up.

A worker thread whose run was cancelled is ended by the same callbacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler

from rxlanggraph.bridge.callbacks import with_callbacks
from rxlanggraph.bridge.graphs.configs import Config
from rxlanggraph.concurrency.waiters import Waiter

__all__ = ["Pace"]

# Events until a node lets the reader of the chunks catch up. A guess: a model may say many tokens
# without a turn of the loop, and turns take time.
_AHEAD = 16
# Turns of the loop in which LangGraph brings a chunk to its reader; five are observed.
_TURNS = 8
# Seconds after which a thread checks whether the loop that it waits for still runs.
_CHECK_SECONDS = 1.0


class Pace:
    """Holds up the nodes of one run while one of its chunks waits for room.

    Made on the loop of the run, and confined to it, except where stated otherwise.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        # Whether a chunk waits; and how the run has ended, once it has: written on the loop, one
        # reference each, and read by worker threads.
        self._held = False
        self._ended: Literal["well", "failed"] | None = None
        self._of_thread = _OfThread()
        self._ahead = 0
        self._waiting: list[Waiter] = []

    def among(self, config: Config | None) -> Config:
        """Return ``config`` with the callbacks that keep this pace."""
        handlers = [_OnLoop(self), _InThread(self)]
        return with_callbacks(config, handlers)

    async def hold(self, room: Awaitable[None]) -> None:
        """Await ``room``, while the nodes wait."""
        self._held = True
        try:
            await room
        finally:
            self._held = False
            # By then the next chunk waits, or there is none.
            self.loop.call_soon(self._release)

    def end(self, *, failed: bool) -> None:
        """Hold no node any more; of a run that ``failed``, end what is at work in threads."""
        self._ended = "failed" if failed else "well"
        self._release()

    def _release(self) -> None:
        if not self._held:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                waiter.wake()

    async def keep(self) -> None:
        """Wait while a chunk waits. In a task of the run; other loops are not held up."""
        if self._ended is not None or asyncio.get_running_loop() is not self.loop:
            return
        self._ahead += 1
        if self._ahead < _AHEAD and not self._held:
            return
        await self._catch_up()

    async def _catch_up(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        self._ahead = 0
        while self._held:
            waiter = Waiter()
            waiter.prepare()
            self._waiting.append(waiter)
            await waiter.wait()

    def keep_in_thread(self) -> None:
        """Block while a chunk waits. In a worker thread of the run.

        Raises:
            CancelledError: That of asyncio: the run has failed, or was cancelled. A thread cannot
                be cancelled otherwise, and what it does is of no use.
        """
        self._block()
        if self._ended == "failed":
            raise asyncio.CancelledError

    def _block(self) -> None:
        if self._ended is not None or not self.loop.is_running():
            return
        self._of_thread.ahead += 1
        if self._of_thread.ahead < _AHEAD and not self._held:
            return
        self._of_thread.ahead = 0
        kept = self._catch_up()
        try:
            future = asyncio.run_coroutine_threadsafe(kept, self.loop)
        except RuntimeError:  # the loop is closed
            kept.close()
            return
        while not future.done() and self.loop.is_running():
            with contextlib.suppress(FutureTimeoutError, CancelledError):
                future.result(_CHECK_SECONDS)
        future.cancel()


class _OfThread(threading.local):
    """Of each worker thread, how many events it is ahead."""

    ahead = 0


class _Handler(BaseCallbackHandler):
    """What LangChain calls for a run; of the two kinds, one is called in each thread."""

    run_inline = True

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def _is_elsewhere(self) -> bool:
        raise NotImplementedError

    @property
    def ignore_llm(self) -> bool:
        return self._is_elsewhere()

    @property
    def ignore_chain(self) -> bool:
        return self._is_elsewhere()

    @property
    def ignore_agent(self) -> bool:  # tools
        return self._is_elsewhere()

    @property
    def ignore_chat_model(self) -> bool:  # its start
        return True


class _OnLoop(_Handler):
    """For what is awaited on the loop of the run."""

    def _is_elsewhere(self) -> bool:
        if asyncio._get_running_loop() is not self._pace.loop:
            return True
        # Sync code on the loop, as in nodes of LangGraph's own agents: LangChain would have a
        # thread with another loop await the callback, at each call. Its two functions that ask for
        # the properties differ in name alone; were that to change, the thread would do no harm.
        return sys._getframe(2).f_code.co_name == "handle_event"

    async def on_llm_new_token(self, *_: Any, **__: Any) -> None:
        await self._pace.keep()

    async def on_chain_start(self, *_: Any, **__: Any) -> None:
        await self._pace.keep()

    async def on_tool_start(self, *_: Any, **__: Any) -> None:
        await self._pace.keep()


class _InThread(_Handler):
    """For what is called in worker threads."""

    def _is_elsewhere(self) -> bool:
        return asyncio._get_running_loop() is not None

    def on_llm_new_token(self, *_: Any, **__: Any) -> None:
        self._pace.keep_in_thread()

    def on_chain_start(self, *_: Any, **__: Any) -> None:
        self._pace.keep_in_thread()

    def on_tool_start(self, *_: Any, **__: Any) -> None:
        self._pace.keep_in_thread()
