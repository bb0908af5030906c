"""rxlanggraph: streams of messages through LangGraph graphs, with nothing lost on the way.

A map of the layers; each imports only from those above it.

    errors, messages     what can go wrong; what flows in and out
    forking              what becomes of all this in a forked child
    texts                what others say, made fit to be written
    usercode             what user code raises, and who must not suffer from it
    probes               whether a loop still turns, asked from outside
    tracebacks           what an exception keeps, and what of it nobody needs
    state                values, locks and work that agents share, on a server or in memory
    entries, registry    who is in flight: open, closing, closed
    futures              a future that costs a backlog of many next to nothing
    tasks                asyncio's tasks: started at once, let go of quietly
    waits                who waits for whom; circles are refused
    runs                 one message on its way through one graph, and its future
    handoff              the only crossing from a thread to the loop
    turns, backlog,      whose turn it is; how many may wait;
    threads, homes       where sync code runs; where the loop lives
    engine               what happens to a run between its submission and its end
    cleanup              cancelling, draining, and the report
    operators            how a stream of messages becomes a stream of runs
    ending, bridge       the public face of it all
    agent                an actor: its state, its memory, its output, one run at a time
    cli                  the command, thin over the bridge
    testing              what you need to test pipelines of your own
"""

from rxlanggraph.bridge import RxPyLangGraphBridge
from rxlanggraph.cleanup import CleanupReport, StuckRun
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
