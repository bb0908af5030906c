"""How a bridge ends: cleaning up, closing, and the context manager that closes it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from rxlanggraph.cleanup import CleanupReport, cleanup_steps, close_steps, drive, drive_async
from rxlanggraph.engine import Engine
from rxlanggraph.errors import BlockingCallError

__all__ = ["Ending"]


class Ending:
    """The half of `RxPyLangGraphBridge` that ends its runs, and itself."""

    # Set by the bridge that this is half of, and never again.
    name: str
    _engine: Engine

    def cleanup_tasks(self, timeout: float | None = 5.0) -> CleanupReport:
        """Cancel everything in flight, and wait until it has ended; the bridge stays usable.

        What arrives meanwhile is cancelled too. When this returns, nothing that was admitted
        before still runs, unless the report names it. Any thread but the loop's own, also in a
        signal handler; blocks.

        Args:
            timeout: Seconds to wait; None waits for ever, 0 does not wait.

        Raises:
            BlockingCallError: Called on the loop's own thread; nothing was cancelled.
            DeadlockError: Called in a run of the bridge; nothing was cancelled.
        """
        self._refuse_own_loop("cleanup_tasks", "await bridge.cleanup_tasks_async()", timeout)
        return drive(cleanup_steps(self._engine, timeout), self._engine.registry)

    async def cleanup_tasks_async(self, timeout: float | None = 5.0) -> CleanupReport:
        """Do what `cleanup_tasks` does, awaiting. Any loop.

        Cancelling it stops the waiting; what was cancelled stays so. A run that awaits it on its
        own bridge is cancelled like all others.

        Args:
            timeout: Seconds to wait; None waits for ever.
        """
        return await drive_async(cleanup_steps(self._engine, timeout), self._engine.registry)

    def close(
        self, timeout: float | None = 5.0, *, cancel_timeout: float | None = 5.0
    ) -> CleanupReport:
        """Seal admission, drain, cancel the rest, and end the loop or give it back.

        Any thread but the loop's own, also in a signal handler or a finalizer; blocks. Calling it
        again waits again and changes nothing else.

        Args:
            timeout: Seconds that runs in flight get to end by themselves; None for ever.
            cancel_timeout: Seconds that cancelled ones get after that.

        Raises:
            BlockingCallError: Called on the loop's own thread with something to wait for; nothing
                was closed. With both timeouts 0 it may be called anywhere.
            DeadlockError: Called in a run of the bridge, likewise.
        """
        waits = None if timeout is None or cancel_timeout is None else timeout + cancel_timeout
        self._refuse_own_loop(
            "close", "await bridge.aclose(), or close(0, cancel_timeout=0),", waits
        )
        engine = self._engine
        report = drive(close_steps(engine, timeout, cancel_timeout), engine.registry)
        if not self._on_own_loop():
            engine.wait_left(cancel_timeout)
        engine.threads.shutdown(wait=not report.stuck)
        return report

    async def aclose(
        self, timeout: float | None = 5.0, *, cancel_timeout: float | None = 5.0
    ) -> CleanupReport:
        """Do what `close` does, awaiting. Any loop but one that the bridge owns.

        Cancelling it ends the loop, or gives it back, without more waiting.

        Args:
            timeout: As in `close`.
            cancel_timeout: As in `close`.

        Raises:
            BlockingCallError: Awaited on the loop that the bridge owns and would have to end.
        """
        engine = self._engine
        if self._on_own_loop() and engine.home.owned:
            raise BlockingCallError(
                f"aclose() on the loop that {self.name} owns would wait for the end of that very "
                "loop; close the bridge from the thread or loop that made it"
            )
        report = await drive_async(close_steps(engine, timeout, cancel_timeout), engine.registry)
        await asyncio.wait([asyncio.wrap_future(engine.home.left)], timeout=cancel_timeout)
        engine.threads.shutdown(wait=not report.stuck)
        return report

    def __enter__(self) -> Self:
        """Return the bridge itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """`close`; without draining if an exception leaves the block."""
        if exc_type is None:
            self.close()
        else:
            self.close(0)

    async def __aenter__(self) -> Self:
        """Return the bridge itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """`aclose`; without draining if an exception leaves the block."""
        if exc_type is None:
            await self.aclose()
        else:
            await self.aclose(0)

    def _on_own_loop(self) -> bool:
        running = asyncio._get_running_loop()
        return running is not None and running is self._engine.home.loop

    def _refuse_own_loop(self, method: str, remedy: str, timeout: float | None) -> None:
        if timeout == 0:
            return
        if self._on_own_loop():
            raise BlockingCallError(
                f"{method}() would block the event loop of {self.name}, and wait for what only "
                f"that loop can end; use '{remedy}' there"
            )
        self._engine.registry.check_outside(f"{method}()")
