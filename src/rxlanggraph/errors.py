"""Every error that this package raises on purpose.

    RxLangGraphError
    ├── UsageError                          the call is wrong; change the code
    │   ├── InvalidArgumentError            (ValueError)  a value out of its range
    │   ├── InvalidTypeError                (TypeError)   not a graph, message or task
    │   ├── BlockingCallError               (RuntimeError) would block a loop on itself
    │   │   └── DeadlockError               a run would wait for what waits for it
    │   └── WrongThreadError                (RuntimeError) an asyncio task of another loop
    ├── ClosedError                         (RuntimeError) closed by you
    │   ├── RegistryClosedError
    │   ├── BridgeClosedError
    │   └── StateClosedError
    ├── LoopUnavailableError                (RuntimeError) broken elsewhere: no loop runs
    │   └── WrongProcessError               it runs in the process that this one was forked from
    ├── MissingExtraError                   (ImportError) not installed
    ├── ExecutorUnavailableError            (ConnectionError) no worker process can be started
    ├── StateError                          shared state refused
    │   ├── ContentionError                 the value changed at every attempt
    │   ├── LeaseLostError                  a lock or a claim is no longer yours
    │   │   └── StaleTokenError             a write under such a lock
    │   ├── LockTimeoutError                (TimeoutError) held by another owner
    │   ├── StateUnavailableError           (ConnectionError) broken elsewhere: the server is gone
    │   └── UndecodableError                (ValueError) stored by another program, and not as JSON
    ├── AgentError                          an agent refused
    │   ├── AgentBusyError                  (RuntimeError) one run at a time
    │   ├── AgentInterruptedError           its graph asks, and waits for an answer
    │   ├── AgentMessageError               an MCP message that cannot be read
    │   ├── IllegalTransitionError          (RuntimeError) not from the state that it is in
    │   └── OutputEndedError                (RuntimeError) the run is over, its output read
    ├── ChunksLostError                     (LookupError) chunks of a run that are no longer kept
    └── RunError                            why one run has no result
        ├── LaneLostError                   another process may have its thread
        ├── RunTimeoutError                 (TimeoutError)
        ├── RunCancelledError
        ├── RunDrainedError                 its bridge closes; it can be continued later
        ├── RunInterruptedError             another message took its thread over
        ├── WorkerLostError                 its worker process has died
        └── RunRejectedError                refused before it started
            ├── BacklogFullError            no room for it (overflow="error"); try again later
            ├── PendingInterruptError       new input, and the thread waits for an answer
            ├── RunDroppedError             dropped by the overflow policy of the bridge
            ├── StaleResumeError            an answer, and its question is not pending
            └── ThreadBusyError             its thread has a run, or as many as may wait

Misuse, closed-by-you and broken-elsewhere are different classes, so that a caller can catch the
one that it can handle. An exception raised by a graph is never wrapped.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "AgentBusyError",
    "AgentError",
    "AgentInterruptedError",
    "AgentMessageError",
    "BacklogFullError",
    "BlockingCallError",
    "BridgeClosedError",
    "ChunksLostError",
    "ClosedError",
    "ContentionError",
    "DeadlockError",
    "ExecutorUnavailableError",
    "IllegalTransitionError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "LaneLostError",
    "LeaseLostError",
    "LockTimeoutError",
    "LoopUnavailableError",
    "MissingExtraError",
    "OutputEndedError",
    "PendingInterruptError",
    "RegistryClosedError",
    "RunCancelledError",
    "RunDrainedError",
    "RunDroppedError",
    "RunError",
    "RunInterruptedError",
    "RunRejectedError",
    "RunTimeoutError",
    "RxLangGraphError",
    "StaleResumeError",
    "StaleTokenError",
    "StateClosedError",
    "StateError",
    "StateUnavailableError",
    "ThreadBusyError",
    "UndecodableError",
    "UsageError",
    "WorkerLostError",
    "WrongProcessError",
    "WrongThreadError",
]


class RxLangGraphError(Exception):
    """Root of the tree: catches everything that this package raises on purpose."""


class UsageError(RxLangGraphError):
    """The call itself is wrong, whatever the state of the program."""


class InvalidArgumentError(UsageError, ValueError):
    """A value is outside the range that the argument allows."""


class InvalidTypeError(UsageError, TypeError):
    """An object of this type is not accepted here."""


class BlockingCallError(UsageError, RuntimeError):
    """The call would block an event loop's thread while waiting for that same loop."""


class DeadlockError(BlockingCallError):
    """A run, or a loop, would wait for something that in turn waits for it to continue."""


class WrongThreadError(UsageError, RuntimeError):
    """An asyncio task or future was touched from outside its own loop."""


class ClosedError(RxLangGraphError, RuntimeError):
    """The object was closed; it accepts nothing new."""


class RegistryClosedError(ClosedError):
    """``TaskRegistry.add`` after ``TaskRegistry.close``."""


class BridgeClosedError(ClosedError):
    """A message was handed to a bridge after its ``close`` or ``aclose``."""


class StateClosedError(ClosedError):
    """A shared state was used after it was closed."""


class LoopUnavailableError(RxLangGraphError, RuntimeError):
    """The event loop is closed, stopped or not running, and nothing of ours stopped it."""


class WrongProcessError(LoopUnavailableError):
    """Something of the parent process was used in a forked child, where its threads are not."""


class StateError(RxLangGraphError):
    """A call on shared state failed."""


class ContentionError(StateError):
    """On every attempt the value had just been changed concurrently; nothing was written."""


class LeaseLostError(StateError):
    """The lease of a lock or of a claim ended, and with it the right to continue."""


class StaleTokenError(LeaseLostError):
    """A write had a fencing token older than one already seen for its key."""


class LockTimeoutError(StateError, TimeoutError):
    """The lock was held by another owner for as long as the caller would wait."""


class StateUnavailableError(StateError, ConnectionError):
    """The server of a shared state does not answer.

    Attributes:
        in_doubt: Whether the call may have taken effect nevertheless. False: it certainly had no
            effect, and can be repeated.
    """

    def __init__(self, message: str, *, in_doubt: bool = True) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt


class UndecodableError(StateError, ValueError):
    """A stored text cannot be decoded, so another program has written it."""


class MissingExtraError(RxLangGraphError, ImportError):
    """A package that an optional part of rxlanggraph needs is not installed."""


class ExecutorUnavailableError(RxLangGraphError, ConnectionError):
    """An executor cannot start worker processes: its cluster does not answer, or has no room."""


class AgentError(RxLangGraphError):
    """A call on an agent, or on a part of one, failed."""


class AgentBusyError(AgentError, RuntimeError):
    """An agent was asked to run while another run of it was active."""


class AgentInterruptedError(AgentError):
    """The graph of an agent has called ``interrupt()``, and waits for an answer.

    Attributes:
        interrupts: LangGraph's ``Interrupt`` objects, each with a ``value`` and an ``id``.
        thread_id: The thread of the graph that waits.
    """

    def __init__(
        self, message: str, *, interrupts: tuple[Any, ...] = (), thread_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.interrupts = interrupts
        self.thread_id = thread_id


class AgentMessageError(AgentError):
    """An MCP message has no content that an agent could read."""


class IllegalTransitionError(AgentError, RuntimeError):
    """A state was to be entered that must not follow the agent's current one."""


class OutputEndedError(AgentError, RuntimeError):
    """The run that filled the output has ended, and everything it put there was read."""


class ChunksLostError(RxLangGraphError, LookupError):
    """The requested chunks of a run are not kept, or no longer."""


class RunError(RxLangGraphError):
    """A run ended without a result, and not by an exception of its graph."""


class LaneLostError(RunError):
    """A bridge with ``lanes`` has lost the lease of the run's thread."""


class RunTimeoutError(RunError, TimeoutError):
    """A run did not end, or made no progress, in time.

    Attributes:
        limit: Which limit it exceeded: one of the `TimeLimits`, or ``"deadline"``. None if the
            error was made from a result of which only the status is known.
        node: The node in which the run was then; in a subgraph, after the nodes that called it
            (``outer|inner``); several are separated by commas. None if it had not begun, was
            between two nodes, is no graph, or is executed in another process.
    """

    def __init__(self, message: str, *, limit: str | None = None, node: str | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.node = node


class RunCancelledError(RunError):
    """A run was cancelled: by its caller, by cleanup, or by its own graph."""


class RunDrainedError(RunError):
    """A run stopped before its graph had finished, because it was asked to: nothing is lost.

    Attributes:
        begun: Whether it had begun. If so, its graph has stopped between two supersteps: a message
            with None as content continues it on its thread, in another process too. If not, nothing
            of its message has reached the graph: send that again.
        thread_id: The thread of the run.
        checkpoint_id: The id of the checkpoint that such a message continues from: the latest one
            of the thread. None if the run had not begun, or the checkpoint could not be read.
    """

    def __init__(
        self,
        message: str,
        *,
        begun: bool = False,
        thread_id: str | None = None,
        checkpoint_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.begun = begun
        self.thread_id = thread_id
        self.checkpoint_id = checkpoint_id


class RunInterruptedError(RunError):
    """A message with the policy to interrupt arrived on the run's thread."""


class WorkerLostError(RunError):
    """The worker process that executed a run has died, or cannot be reached any more.

    What the run has done by then is unknown; on a thread with checkpoints, what it has saved stays.
    """


class RunRejectedError(RunError):
    """A run was refused before it started."""


class ThreadBusyError(RunRejectedError):
    """A thread had a run already, or as many waiting as it may have."""


class PendingInterruptError(RunRejectedError):
    """New input arrived on a thread whose graph waits for an answer.

    Attributes:
        interrupts: LangGraph's ``Interrupt`` objects that wait for an answer.
    """

    def __init__(self, message: str, *, interrupts: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.interrupts = interrupts


class StaleResumeError(RunRejectedError):
    """An answer arrived on a thread on which its question is not pending, or no longer.

    Attributes:
        interrupts: LangGraph's ``Interrupt`` objects that wait for an answer instead.
    """

    def __init__(self, message: str, *, interrupts: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.interrupts = interrupts


class BacklogFullError(RunRejectedError):
    """``max_pending`` messages wait already, and the bridge has ``overflow="error"``.

    The message can be sent again later: a web handler answers 429 or 503.
    """


class RunDroppedError(RunRejectedError):
    """A message was dropped, because more than ``max_pending`` would have waited."""


# LangGraph's own note on an exception that leaves a node; that of a subgraph comes first.
_NOTE = re.compile(r"During task with name '(.*)' and id '", re.DOTALL)


def encodable(text: str) -> str:
    """Return ``text`` with what UTF-8 cannot hold (lone surrogates) as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def error_text(error: BaseException) -> str:
    """Return the text of an exception, even if its ``__str__`` fails."""
    try:
        return encodable(str(error))
    except (Exception, SystemExit) as second:  # the user's: the end of a run, not of the process
        return f"(its __str__ raised {type(second).__name__})"


def node_of(error: BaseException) -> str | None:
    """Return the node that raised ``error``, or was cut off by a time limit; None if no node.

    In a subgraph, after the nodes that called it, as in LangGraph's namespaces: ``outer|inner``.
    """
    notes = getattr(error, "__notes__", None)
    found = [
        match[1]
        for note in reversed(notes if isinstance(notes, list) else [])
        if isinstance(note, str) and (match := _NOTE.match(note))
    ]
    # An exception that is raised again and again has the notes of each time.
    if found:
        return encodable("|".join(dict.fromkeys(found)))
    node = error.node if isinstance(error, RunTimeoutError) else None
    return None if node is None else encodable(node)
