"""Rx's flattening operators, over graphs: each message is mapped to a run of a graph.

In Rx a flattening operator maps each item to an inner stream and says which of them may run at a
time. Here the inner stream is a run with its one result. The names and the meanings are Rx's; what
RxPY lacks is named as in RxJava.

    flat_map           all at once, results as they come; at most ``max_concurrent``
    concat_map         one after another, in order
    concat_map_eager   at most ``max_concurrent`` at once, results in the order of the messages
    switch_map         the latest: a new message cancels the run before it
    exhaust_map        the first: messages are refused while a run is active

`switch_map` and `exhaust_map` look at each thread by itself, as everywhere on a bridge, and at all
messages of a subscription that have no ``thread_id`` together. So without threads these are RxPY's
operators. They are thin: everything that `RxPyLangGraphBridge.invoke` says holds for them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, Unpack

from reactivex import Observable

from rxlanggraph.bridge.adapters import Graph
from rxlanggraph.bridge.bridge import (
    OperatorArguments,
    RxPyLangGraphBridge,
    single_lane_operator,
)
from rxlanggraph.bridge.operators.invoke import ErrorPolicy, ThreadSelector
from rxlanggraph.errors import InvalidTypeError
from rxlanggraph.messages import StreamMessage

__all__ = ["concat_map", "concat_map_eager", "exhaust_map", "flat_map", "switch_map"]

Operator: TypeAlias = Callable[[Observable[Any]], Observable[StreamMessage]]


def flat_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    max_concurrent: int | None = None,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on every message, and emit the results as they come.

    May be called from any thread; never blocks. What the operator does is said for
    `RxPyLangGraphBridge.invoke`, the arguments that are not listed included.

    Args:
        bridge: Executes the runs.
        graph: What is run.
        max_concurrent: How many runs of a subscription may be active at once, which RxPY's operator
            cannot limit. None: as many as the bridge allows.
        thread_id: The thread of every message, or a function of the item that returns it.
        errors: How a run that did not succeed affects the stream.
        options: The other arguments.

    Raises:
        InvalidTypeError, InvalidArgumentError: As for `RxPyLangGraphBridge.invoke`.
    """
    return _of(bridge).invoke(
        graph, max_concurrency=max_concurrent, thread_id=thread_id, errors=errors, **options
    )


def concat_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on one message after another, in their order.

    Args:
        bridge: As in `flat_map`.
        graph: As in `flat_map`.
        thread_id: As in `flat_map`.
        errors: As in `flat_map`.
        options: As in `flat_map`.

    Raises:
        InvalidTypeError, InvalidArgumentError: As in `flat_map`.
    """
    return _of(bridge).invoke(
        graph, max_concurrency=1, ordered=True, thread_id=thread_id, errors=errors, **options
    )


def concat_map_eager(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    max_concurrent: int | None = None,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on several messages at once, and emit the results in the messages' order.

    Args:
        bridge: As in `flat_map`.
        graph: As in `flat_map`.
        max_concurrent: As in `flat_map`. Runs begin at most twice as many messages ahead of the one
            whose result is due.
        thread_id: As in `flat_map`.
        errors: As in `flat_map`.
        options: As in `flat_map`.

    Raises:
        InvalidTypeError, InvalidArgumentError: As in `flat_map`.
    """
    return _of(bridge).invoke(
        graph,
        max_concurrency=max_concurrent,
        ordered=True,
        thread_id=thread_id,
        errors=errors,
        **options,
    )


def switch_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on the latest message: the run before it is cancelled, and has ended, first.

    Unlike RxPY's operator, which begins the next one beside the cleanup of the last. A cancelled
    run emits nothing, but for ``errors="emit"``: its status is ``"interrupted"`` then.

    Args:
        bridge: As in `flat_map`.
        graph: As in `flat_map`.
        thread_id: As in `flat_map`.
        errors: As in `flat_map`.
        options: As in `flat_map`; ``multitask_strategy`` may be ``"rollback"``, to undo what the
            cancelled run has saved.

    Raises:
        InvalidTypeError, InvalidArgumentError: As in `flat_map`.
    """
    options = {"multitask_strategy": "interrupt", **options}
    return single_lane_operator(_of(bridge), graph, thread_id=thread_id, errors=errors, **options)


def exhaust_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on a message unless a run is active: then the message is refused.

    RxPY has this for streams of streams only, as ``exclusive``. A refused message emits nothing,
    but for ``errors="emit"``: its status is ``"rejected"`` then.

    Args:
        bridge: As in `flat_map`.
        graph: As in `flat_map`.
        thread_id: As in `flat_map`.
        errors: As in `flat_map`.
        options: As in `flat_map`.

    Raises:
        InvalidTypeError, InvalidArgumentError: As in `flat_map`.
    """
    options = {"multitask_strategy": "reject", **options}
    return single_lane_operator(_of(bridge), graph, thread_id=thread_id, errors=errors, **options)


def _of(bridge: object) -> RxPyLangGraphBridge:
    if not isinstance(bridge, RxPyLangGraphBridge):
        raise InvalidTypeError(
            f"the first argument must be the bridge that executes the runs, not {bridge!r}"
        )
    return bridge
