"""rxlanggraph: streams of messages through LangGraph graphs, with nothing lost on the way.

A map of the layers; each imports only from those above it.

    errors, messages     what can go wrong; what flows in and out
    validation           what arguments must be
    concurrency          futures, threads, tasks and loops, about no message
    rx                   Rx grammar under threads
    actor                a state that is not shared: one writer, and messages to it
    state                values, locks and work that agents share, on a server or in memory
    registry             who is in flight: open, closing, closed
    bridge               one message on its way from a thread to the loop and back
    agent                an actor: its state, its memory, its output, one run at a time
    cli                  the command, thin over the bridge
    testing              what you need to test pipelines of your own
"""

from rxlanggraph.bridge.bridge import RxPyLangGraphBridge
from rxlanggraph.bridge.shutdown import CleanupReport, StuckRun
from rxlanggraph.errors import (
    BlockingCallError,
    BridgeClosedError,
    LoopUnavailableError,
    RegistryClosedError,
    RunCancelledError,
    RunTimeoutError,
    RxLangGraphError,
)
from rxlanggraph.messages import StreamMessage
from rxlanggraph.registry import TaskInfo, TaskRegistry

__all__ = [
    "BlockingCallError",
    "BridgeClosedError",
    "CleanupReport",
    "LoopUnavailableError",
    "RegistryClosedError",
    "RunCancelledError",
    "RunTimeoutError",
    "RxLangGraphError",
    "RxPyLangGraphBridge",
    "StreamMessage",
    "StuckRun",
    "TaskInfo",
    "TaskRegistry",
]
