"""A checkpoint saver that refuses what a run writes after it has lost the lease of its thread.

What breaks without it: a process that was suspended wakes up in the middle of a run, and saves its
next checkpoint behind those of the process that has the thread by now. That one becomes the latest,
so what the other process has saved is lost.

The lease is checked in this process, before each write. What was checked and then held up on its
way to the saver's server still arrives. LangGraph finds the latest checkpoint by its id, which
begins with the time at which it was made: one that was made under the lease is older than all that
are made under a later lease, so it does not become the thread's state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver

from rxlanggraph.bridge.run import run_scope
from rxlanggraph.errors import LaneLostError

__all__ = ["Fence", "FencedSaver", "RunFence"]


class Fence(Protocol):
    """What writes have to pass."""

    def check(self) -> None:
        """Raise LaneLostError if the lease is lost. In the thread that writes."""

    async def check_async(self) -> None:
        """As `check`, in a coroutine that writes."""


class FencedSaver(BaseCheckpointSaver[Any]):
    """A saver in front of another one, which lets through what passes a fence.

    Its methods may be called in the threads in which those of the other one may be.

    Args:
        saver: The other saver.
        fence: What writes have to pass.
    """

    def __init__(self, saver: Any, fence: Fence) -> None:
        self._saver = saver
        self._fence = fence
        self.serde = saver.serde

    def __getattr__(self, name: str) -> Any:
        """What a saver has beyond LangGraph's interface."""
        return getattr(self._saver, name)

    @property
    def config_specs(self) -> list[Any]:
        """As the other saver's."""
        specs: list[Any] = self._saver.config_specs
        return specs

    # -- reading ---------------------------------------------------------------------------------

    def get_tuple(self, config: Any) -> Any:
        """Read from the other saver."""
        return self._saver.get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        """Read from the other saver."""
        return await self._saver.aget_tuple(config)

    def list(self, config: Any, **options: Any) -> Iterator[Any]:
        """Read from the other saver."""
        checkpoints: Iterator[Any] = self._saver.list(config, **options)
        return checkpoints

    def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        """Read from the other saver."""
        checkpoints: AsyncIterator[Any] = self._saver.alist(config, **options)
        return checkpoints

    def get_delta_channel_history(self, **options: Any) -> Any:
        """Read from the other saver."""
        return self._saver.get_delta_channel_history(**options)

    async def aget_delta_channel_history(self, **options: Any) -> Any:
        """Read from the other saver."""
        return await self._saver.aget_delta_channel_history(**options)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Count as the other saver."""
        return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Any) -> Any:
        """Return what the other saver returns, fenced as well."""
        return FencedSaver(self._saver.with_allowlist(extra_allowlist), self._fence)

    # -- writing ---------------------------------------------------------------------------------

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Write to the other saver, unless the lease is lost."""
        self._fence.check()
        return self._saver.put(config, checkpoint, metadata, new_versions)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Write to the other saver, unless the lease is lost."""
        await self._fence.check_async()
        return await self._saver.aput(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """Write to the other saver, unless the lease is lost."""
        self._fence.check()
        self._saver.put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        """Write to the other saver, unless the lease is lost."""
        await self._fence.check_async()
        await self._saver.aput_writes(config, writes, task_id, task_path)


class RunFence:
    """The fence of runs in this process: which run writes is known by the context of the call."""

    def check(self) -> None:
        """Raise LaneLostError if the run has lost its lease, or has ended. Never blocks."""
        scope = run_scope.get()
        if scope is None:
            return
        run = scope.run
        if run is not None:
            with run.lock:  # the end of the run removes both in one step
                has_ended, lease = scope.run is None, run.lease
            if not has_ended:
                if lease is not None:
                    lease.check()
                return
        raise LaneLostError(
            "a run has ended and given back the lease of its thread, so what it left behind saves "
            "nothing more; await it in the run"
        )

    async def check_async(self) -> None:
        """As `check`."""
        self.check()
