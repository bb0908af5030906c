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
    ├── MissingExtraError                   (ImportError) not installed
    ├── AgentError                          an agent said no
    │   ├── AgentBusyError                  (RuntimeError) one run at a time
    │   ├── AgentMessageError               an MCP message that cannot be read
    │   ├── IllegalTransitionError          (RuntimeError) not from the state that it is in
    │   └── OutputEndedError                (RuntimeError) the run is over, its output taken
    └── RunError                            why one run has no result
        ├── RunTimeoutError                 (TimeoutError)
        ├── RunCancelledError
        └── RunRejectedError

Misuse, closed-by-you and broken-elsewhere are different classes, so that a caller can catch the
one it can do something about. An exception raised by a graph is never wrapped: it arrives as it is.
"""

from __future__ import annotations

__all__ = [
    "AgentBusyError",
    "AgentError",
    "AgentMessageError",
    "BlockingCallError",
    "BridgeClosedError",
    "ClosedError",
    "IllegalTransitionError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "LoopUnavailableError",
    "MissingExtraError",
    "OutputEndedError",
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


class MissingExtraError(RxLangGraphError, ImportError):
    """A package is not installed that an optional part of rxlanggraph needs."""


class AgentError(RxLangGraphError):
    """A call on an agent, or on a part of one, did not do what it was asked for."""


class AgentBusyError(AgentError, RuntimeError):
    """An agent was asked to run while another run of it was on."""


class AgentMessageError(AgentError):
    """An MCP message has no content that an agent could read."""


class IllegalTransitionError(AgentError, RuntimeError):
    """A state was to be entered that may not follow the one the agent is in."""


class OutputEndedError(AgentError, RuntimeError):
    """The run that filled the output has ended, and all that it put there was taken."""


class RunError(RxLangGraphError):
    """A run ended without a result, and not by an exception of its graph."""


class RunTimeoutError(RunError, TimeoutError):
    """A run did not end within its ``timeout``."""


class RunCancelledError(RunError):
    """A run was cancelled: by its caller, by clean-up, or by its own graph."""


class RunRejectedError(RunError):
    """A run was refused before it started."""
