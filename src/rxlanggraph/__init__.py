"""rxlanggraph: streams of messages through LangGraph graphs, without losing any.

A map of the layers; each imports only from those above it.

    errors, messages     exceptions; the items of streams
    validation           argument checks
    concurrency          futures, threads, tasks and loops, independent of messages
    langgraph_tasks      tasks of LangGraph that outlive the run they belong to
    rx                   Rx grammar under threads
    actor                StateActor: one writer, and commands to it
    state                values, locks and work that agents share, on a server or in memory
    registry             the tasks in flight: open, closing, closed
    hooks                what metrics and traces learn of runs
    http_server          uvicorn, with limited connections
    limits               what runs may ask of the providers of models
    live                 the live page: what is in flight, what has ended, over HTTP
    executors            where runs are executed, if not in this process
    bridge               one message on its way from a thread to the loop and back
    operators            Rx's flattening operators, over graphs; streams awaited on a loop
    telemetry            traces and metrics of a bridge, for OpenTelemetry
    agent                agents: state, memory and output, one run at a time
    cli                  the command, thin over the bridge
    testing              helpers for tests of your own pipelines
"""

from rxlanggraph import errors
from rxlanggraph.bridge.bridge import RxPyLangGraphBridge
from rxlanggraph.bridge.chunk_window import ChunkReader
from rxlanggraph.bridge.shutdown import CleanupReport, StuckRun
from rxlanggraph.bridge.time_limits import TimeLimits
from rxlanggraph.errors import *  # noqa: F403
from rxlanggraph.messages import StreamMessage
from rxlanggraph.registry import TaskInfo, TaskRegistry

__all__ = [
    "ChunkReader",
    "CleanupReport",
    "RxPyLangGraphBridge",
    "StreamMessage",
    "StuckRun",
    "TaskInfo",
    "TaskRegistry",
    "TimeLimits",
]
__all__ += errors.__all__
