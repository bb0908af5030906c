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
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from rxlanggraph.bridge.run import run_scope
from rxlanggraph.errors import LaneLostError

__all__ = ["FencedSaver"]


class FencedSaver(BaseCheckpointSaver[Any]):
    """Another saver, but for writes of runs that may not write to their thread any more.

    May be used as the other one may be. Which run writes is known by the context of the call.

    Args:
        saver: The other saver.
    """

    def __init__(self, saver: Any) -> None:
        self._saver = saver
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
        return FencedSaver(self._saver.with_allowlist(extra_allowlist))

    # -- writing ---------------------------------------------------------------------------------

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Write to the other saver, unless the lease is lost."""
        _check_lease()
        return self._saver.put(config, checkpoint, metadata, new_versions)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Write to the other saver, unless the lease is lost."""
        _check_lease()
        return await self._saver.aput(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """Write to the other saver, unless the lease is lost."""
        _check_lease()
        self._saver.put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        """Write to the other saver, unless the lease is lost."""
        _check_lease()
        await self._saver.aput_writes(config, writes, task_id, task_path)


def _check_lease() -> None:
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
