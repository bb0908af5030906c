"""The metrics: their names, labels and descriptions, and where in a `Snapshot` their values are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from rxlanggraph.telemetry.counts import Snapshot, Times

__all__ = ["NUMBERS", "RUN", "TIMES", "WAIT", "Number", "TimesOf"]


class Number(NamedTuple):
    """A metric that is one number for each set of labels.

    Attributes:
        name: Its name, after ``rxlanggraph`` and a dot or underscore.
        kind: Whether it is a ``counter``, which only grows; a ``sum``; or a ``gauge``.
        unit: In the notation of UCUM.
        description: What it counts.
        labels: The names of its labels.
        values: Returns its values in a snapshot, each with those of its labels.
    """

    name: str
    kind: Literal["counter", "sum", "gauge"]
    unit: str
    description: str
    labels: tuple[str, ...]
    values: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], float]]]


class TimesOf(NamedTuple):
    """A metric that is a histogram of seconds for each set of labels.

    Attributes:
        name, description, labels, values: As in `Number`.
    """

    name: str
    description: str
    labels: tuple[str, ...]
    values: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], Times]]]


NUMBERS: Final = (
    Number(
        "runs",
        "counter",
        "{run}",
        "Messages that have ended, whether they began or not.",
        ("graph", "status"),
        lambda all_: (
            ((each.graph, status), count)
            for each in all_.graphs
            for status, count in each.runs.items()
        ),
    ),
    Number(
        "dropped",
        "counter",
        "{message}",
        "Messages that were dropped for lack of room.",
        ("graph",),
        lambda all_: (((each.graph,), each.dropped) for each in all_.graphs if each.dropped),
    ),
    Number(
        "claims",
        "counter",
        "{task}",
        "Tasks that were claimed from a queue of shared state.",
        ("queue",),
        lambda all_: (((queue,), count) for queue, count in all_.claims.items()),
    ),
    Number(
        "in_flight",
        "sum",
        "{message}",
        "Messages that have arrived and not ended.",
        ("graph",),
        lambda all_: (((each.graph,), each.in_flight) for each in all_.graphs),
    ),
    Number(
        "pending",
        "sum",
        "{message}",
        "Messages that have arrived and not begun.",
        ("graph",),
        lambda all_: (((each.graph,), each.pending) for each in all_.graphs),
    ),
    Number(
        "loop_lag",
        "gauge",
        "s",
        "How long a callback waits for the loop at present; of several loops, the longest.",
        (),
        lambda all_: () if all_.loop_lag is None else (((), all_.loop_lag),),
    ),
)
RUN: Final = TimesOf(
    "run",
    "From the start of a run to its real end.",
    ("graph", "status"),
    lambda all_: (
        ((each.graph, status), times)
        for each in all_.graphs
        for status, times in each.durations.items()
    ),
)
WAIT: Final = TimesOf(
    "queue_wait",
    "From the arrival of a message to the start of its run.",
    ("graph",),
    lambda all_: (((each.graph,), each.waits) for each in all_.graphs if any(each.waits.counts)),
)
TIMES: Final = (RUN, WAIT)
