"""Helpers for tests of your own pipelines and backends.

`LeakCheck` finds what a pipeline left behind. `rxlanggraph.testing.state_conformance` checks
whether a backend of shared state keeps the contract.
"""

from rxlanggraph.testing.leaks import IGNORED, Leak, LeakCheck, LeakError, LeakKind

__all__ = ["IGNORED", "Leak", "LeakCheck", "LeakError", "LeakKind"]
