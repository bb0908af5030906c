"""What you need to test what you build on rxlanggraph.

`LeakCheck` tells whether a pipeline left anything behind. `rxlanggraph.testing.state_conformance`
tells whether a backend of shared state keeps the contract.
"""

from rxlanggraph.testing.leaks import IGNORED, Leak, LeakCheck, LeakError, LeakKind

__all__ = ["IGNORED", "Leak", "LeakCheck", "LeakError", "LeakKind"]
