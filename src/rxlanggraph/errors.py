"""Every error this package raises on purpose.

    RxLangGraphError
    ├── UsageError                          the call is wrong; change the code
    │   ├── InvalidArgumentError            (ValueError)  a value out of its range
    │   ├── InvalidTypeError                (TypeError)   not a graph, message or task
    │   ├── BlockingCallError               (RuntimeError) would block a loop on itself
    │   └── WrongThreadError                (RuntimeError) an asyncio task of another loop
    ├── ClosedError                         (RuntimeError) closed by you
    │   ├── RegistryClosedError
    │   └── BridgeClosedError
    ├── LoopUnavailableError                (RuntimeError) broken elsewhere: the loop is gone
    └── RunError                            why one run has no result
        ├── RunTimeoutError                 (TimeoutError)
        ├── RunCancelledError
        └── RunRejectedError

Misuse, closed-by-you and broken-elsewhere are different classes, so that a caller can catch the
one it can do something about. An exception raised by a graph is never wrapped: it arrives as it is.
"""

from __future__ import annotations

__all__ = [
    "BlockingCallError",
    "BridgeClosedError",
    "ClosedError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "LoopUnavailableError",
    "RegistryClosedError",
    "RunCancelledError",
    "RunError",
    "RunRejectedError",
    "RunTimeoutError",
    "RxLangGraphError",
    "UsageError",
    "WrongThreadError",
]


class RxLangGraphError(Exception):
    """Root of the tree: catches everything that this package raises on purpose."""


class UsageError(RxLangGraphError):
    """The call itself is wrong, whatever the state of things."""


class InvalidArgumentError(UsageError, ValueError):
    """A value lies outside what the argument allows."""


class InvalidTypeError(UsageError, TypeError):
    """An object of this type cannot serve here."""


class BlockingCallError(UsageError, RuntimeError):
    """The call would block an event loop's thread while waiting for that same loop."""


class WrongThreadError(UsageError, RuntimeError):
    """An asyncio task or future was touched from outside its own loop."""


class ClosedError(RxLangGraphError, RuntimeError):
    """The object was closed; it takes nothing new."""


class RegistryClosedError(ClosedError):
    """``TaskRegistry.add`` after ``TaskRegistry.close``."""


class BridgeClosedError(ClosedError):
    """A message was handed to a bridge after its ``close`` or ``aclose``."""


class LoopUnavailableError(RxLangGraphError, RuntimeError):
    """The event loop is closed, stopped or not running, and nothing of ours stopped it."""


class RunError(RxLangGraphError):
    """A run ended without a result, and not by an exception of its graph."""


class RunTimeoutError(RunError, TimeoutError):
    """A run did not end within its ``timeout``."""


class RunCancelledError(RunError):
    """A run was cancelled: by its caller, by clean-up, or by its own graph."""


class RunRejectedError(RunError):
    """A run was refused before it started."""
