"""Helpers for tests of your own pipelines and backends.

`LeakCheck` finds what a pipeline left behind. `VirtualBridge` is a bridge in virtual time, for
pipelines that wait: tests need not sleep. `rxlanggraph.testing.state_conformance` checks
whether a backend of shared state keeps the contract.
"""

from rxlanggraph.testing.leaks import IGNORED, Leak, LeakCheck, LeakError, LeakKind
from rxlanggraph.testing.virtual_bridge import VirtualBridge

__all__ = ["IGNORED", "Leak", "LeakCheck", "LeakError", "LeakKind", "VirtualBridge"]
