"""LocalExecutor: runs are executed on the loop of their bridge, as without an executor."""

from __future__ import annotations

from rxlanggraph.executors.contract import Workers

__all__ = ["LocalExecutor"]


class LocalExecutor:
    """Executes runs on the loop of their bridge: for programs whose executor is a setting."""

    retries = 0

    def open(self, name: str) -> Workers | None:
        """Return None: there are no workers. Any thread; never blocks.

        Args:
            name: The name of the bridge.
        """
        return None
