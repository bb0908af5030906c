"""What other packages of rxlanggraph do with a bridge, and users cannot.

Functions beside `RxPyLangGraphBridge`, whose own names are its contract and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any, Literal, Unpack

from reactivex import Observable

from rxlanggraph.bridge.bridge import OperatorArguments, Retry, RxPyLangGraphBridge, check_operator
from rxlanggraph.bridge.graphs.adapters import Graph
from rxlanggraph.bridge.operators.subscription import ErrorPolicy, ThreadSelector, make_operator
from rxlanggraph.bridge.run import Phase, Run
from rxlanggraph.bridge.run_options import RunOptions
from rxlanggraph.bridge.time_limits import Timeout
from rxlanggraph.bridge.watched import WatchedBridge
from rxlanggraph.messages import StreamMessage

__all__ = [
    "cancel_unstarted",
    "count_active",
    "request_drain",
    "single_lane_operator",
    "submitter",
    "watched",
]


def single_lane_operator(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Callable[[Observable[Any]], Observable[StreamMessage]]:
    """Return `RxPyLangGraphBridge.invoke` with one lane for messages without a thread. Any thread.

    Each subscription has a lane of its own. What is not listed is as for that method.

    Args:
        bridge: Executes the runs.
        graph: As there.
        thread_id: As there.
        errors: As there.
        options: Those of its other arguments that say how a run goes.

    Raises:
        InvalidTypeError, InvalidArgumentError: As there.
    """
    checked = bridge._run_options(graph, errors="emit", **options)
    check_operator(checked, None, thread_id)
    return make_operator(
        bridge._engine,
        bridge,
        checked,
        max_concurrency=None,
        ordered=False,
        thread_id=thread_id,
        errors=errors,
        single_lane=True,
    )


def submitter(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    timeout: Timeout | None = None,
    retry: Retry = None,
    errors: Literal["raise", "emit"] = "raise",
    config: Mapping[str, Any] | None = None,
    context: Any = None,
) -> Callable[[Any], Run]:
    """Return `RxPyLangGraphBridge.create_future_task` bound to one ``graph``, for many messages.

    The arguments are those of that method, and are checked once instead of for each message. Any
    thread; never blocks. The returned function of the message may be called from any thread too.

    Raises:
        InvalidTypeError, InvalidArgumentError: As in `RxPyLangGraphBridge.create_future_task`.
    """
    options = bridge._run_options(
        graph, timeout=timeout, retry=retry, errors=errors, config=config, context=context
    )

    def submit(message: Any) -> Run:
        return bridge._engine.submit(*options.bind(message, None), bridge)

    return submit


def cancel_unstarted(bridge: RxPyLangGraphBridge, runs: Sequence[Run]) -> None:
    """Cancel those of ``runs`` that have not begun by the time the loop sees to it.

    Any thread; never blocks. What breaks with `Run.cancel`: a run that begins at that moment is
    stopped in the middle of its work.

    Args:
        bridge: The bridge that all of them were submitted to.
        runs: The runs.
    """
    loop = bridge._engine.inbox.loop
    if loop is not None and runs:
        with contextlib.suppress(RuntimeError):  # it is closed, which ends its runs
            loop.call_soon_threadsafe(_cancel_unstarted, runs, context=Context())


def _cancel_unstarted(runs: Sequence[Run]) -> None:
    for run in runs:
        if run.phase in {Phase.NEW, Phase.WAITING}:
            run.cancel()


def loop_of(bridge: RxPyLangGraphBridge) -> asyncio.AbstractEventLoop:
    """Return the loop on which ``bridge`` runs its graphs; an owned one is started. Any thread."""
    return bridge._engine.started_loop()


def request_drain(bridge: RxPyLangGraphBridge) -> None:
    """Ask the graphs of ``bridge`` to stop, as `RxPyLangGraphBridge.close` does; leave it open.

    Any thread, also a signal handler; never blocks. From now on, a message to a graph that can be
    asked does not begin.
    """
    bridge._engine.request_drain()


def count_active(bridge: RxPyLangGraphBridge) -> int:
    """Return how many runs of ``bridge`` hold a slot: have begun, and have not ended.

    Any thread; never blocks. For display: the number may be about to change.
    """
    return bridge._engine.active


def watched(bridge: RxPyLangGraphBridge, asking: Sequence[RunOptions] = ()) -> WatchedBridge:
    """Return ``bridge`` as what may be looked at. Any thread; never blocks.

    Args:
        bridge: The bridge, which is held weakly.
        asking: The options of calls to the graphs whose earlier questions are read.
    """
    return WatchedBridge(bridge._engine, bridge, bridge._fence, asking)
