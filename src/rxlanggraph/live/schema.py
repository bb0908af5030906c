"""The data of the page: one snapshot, as dictionaries that JSON can hold.

Times are seconds since the epoch, durations are seconds. Texts that the program did not write
itself (ids of threads and messages, names) are cut at `LONGEST_TEXT` characters. What a message
says is there only if content is shown: otherwise ``message`` and ``value`` are None.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypedDict

from rxlanggraph.hooks import NodeStatus
from rxlanggraph.messages import Status
from rxlanggraph.registry import TaskState

__all__ = [
    "LONGEST_TEXT",
    "VERSION",
    "Action",
    "Blocked",
    "Counts",
    "EndedRun",
    "ErrorInfo",
    "Failure",
    "History",
    "JournalProgress",
    "Loop",
    "NodeSpan",
    "Question",
    "RunInFlight",
    "Snapshot",
]

VERSION: Final = 1
"""The version of this schema; a reader refuses any other."""
LONGEST_TEXT: Final = 200

Action = Literal["cancel", "answer", "stack"]


class Counts(TypedDict):
    """The counters of the registry, and the load of the bridge.

    ``submitted`` is the sum of ``succeeded``, ``failed``, ``cancelled`` and ``in_flight``, as in
    `rxlanggraph.registry.RegistryStatistics`. ``active`` runs hold a slot, of ``max_concurrency``;
    ``queued`` ones wait to start.
    """

    submitted: int
    succeeded: int
    failed: int
    cancelled: int
    dropped: int
    in_flight: int
    peak_in_flight: int
    active: int
    queued: int
    max_concurrency: int | None


class History(TypedDict):
    """The last minutes, a value for each second; all lists have the same length.

    Attributes:
        first: The second of the first value.
        ok, error, interrupted, cancelled, timed_out, rejected: How many messages ended so.
        active, queued: The load, as last seen in that second; None if nothing happened in it.
    """

    first: int
    ok: list[int]
    error: list[int]
    interrupted: list[int]
    cancelled: list[int]
    timed_out: list[int]
    rejected: list[int]
    active: list[int | None]
    queued: list[int | None]


class NodeSpan(TypedDict):
    """A node of a run.

    Attributes:
        node: Its name; in a subgraph ``outer|inner``; several at a time are separated by commas.
        began, ended: When; ``ended`` is None while it is active. With ``nodes="sampled"`` these are
            the times of the snapshots that saw it, and a short node may be missing.
        status: How it ended; None if that is not known.
    """

    node: str
    began: float
    ended: float | None
    status: NodeStatus | None


class RunInFlight(TypedDict):
    """A run in flight: as `rxlanggraph.registry.TaskInfo`, and more.

    Attributes:
        began: When it began; None if it has not.
        nodes: Its nodes so far.
        stuck: Whether it has been active for suspiciously long, cancelled or not.
        stack: Of the oldest stuck runs, where they are; otherwise None: see the action ``stack``.
    """

    id: int
    name: str
    thread_id: str | None
    message_id: str | None
    state: TaskState
    age: float
    waiting: float | None
    attempt: int | None
    node: str | None
    began: float | None
    nodes: list[NodeSpan]
    stuck: bool
    stack: str | None


class ErrorInfo(TypedDict):
    """Why a run did not succeed.

    Attributes:
        type: The class of the exception, without its module.
        node: The node that raised it, if any did.
        message: Its text; None unless content is shown.
    """

    type: str
    node: str | None
    message: str | None


class EndedRun(TypedDict):
    """A message that has ended.

    Attributes:
        began, duration: None if its run never began.
    """

    name: str
    thread_id: str | None
    message_id: str
    status: Status
    began: float | None
    ended: float
    duration: float | None
    attempt: int
    error: ErrorInfo | None
    nodes: list[NodeSpan]


class Failure(TypedDict):
    """The failures of one kind: same graph, status, class of exception, and node.

    Attributes:
        status: ``error``, ``timed_out``, ``rejected``; of a journal also ``dead`` and ``invalid``.
        count: How many since the page exists.
        first, last: When the first and the last one ended; None if that is not known.
        thread_id, message_id, message: Those of the last one.
    """

    name: str
    status: str
    type: str
    node: str | None
    count: int
    first: float | None
    last: float | None
    thread_id: str | None
    message_id: str | None
    message: str | None


class Question(TypedDict):
    """An interrupt that waits for an answer.

    Attributes:
        id: Names it in the action ``answer``, on this page alone.
        interrupt_id: LangGraph's id.
        asked: When its run ended, or the step that asks it began.
        value: What it asks, as JSON; None unless content is shown.
        answering: Whether an answer is on its way.
    """

    id: str
    name: str
    thread_id: str
    interrupt_id: str
    asked: float
    value: Any
    answering: bool


class Blocked(TypedDict):
    """A callback that blocked the loop: see `rxlanggraph.hooks.LoopBlocked`."""

    time: float
    where: str
    seconds: float
    stack: str


class Loop(TypedDict):
    """The loop of the bridge.

    Attributes:
        lag: Seconds that a callback waits for it at present; None if that is not known.
        blocked: The last callbacks that blocked it, the latest first.
    """

    lag: float | None
    blocked: list[Blocked]


class JournalProgress(TypedDict):
    """The progress of a durable run, in all processes: as ``rxlanggraph status --json``.

    Attributes:
        workers: How many messages each worker has in flight.
    """

    journal: str
    graph: str
    input: str
    begun: str
    finished: bool
    input_complete: bool
    lines: int
    answered: int
    ok: int
    failed: int
    dead: int
    invalid: int
    in_flight: int
    waiting: int
    workers: dict[str, int]


class Snapshot(TypedDict):
    """All that the page shows, at one moment.

    Attributes:
        version: The version of this schema: 1.
        kind: What it shows. That of a journal has only ``journal``, ``counts``, ``history`` and
            ``failures``; other lists are empty.
        name: The name of the bridge, or of the journal.
        state: ``open``, ``closing`` or ``closed``; of a journal ``open``, ``closed`` once all lines
            have an answer, or ``unreachable``: what is shown is the last that was read.
        time: When it was taken.
        since: When the page began to count.
        shows_content: Whether it has what messages say.
        actions: What the page allows.
        nodes: Whether nodes are ``exact``, or ``sampled``.
        runs: Those in flight: the active ones, oldest first, then those that wait.
        recent: What has ended lately, the latest first.
        slowest: The slowest of the last minutes, the slowest first.
        failures: By kind, the most frequent first.
        interrupts: The questions that wait, the oldest first.
        left_out: By the name of a list, how many entries it lacks, because it would be too long.
    """

    version: int
    kind: Literal["bridge", "journal"]
    name: str
    state: str
    time: float
    since: float
    shows_content: bool
    actions: list[Action]
    nodes: Literal["exact", "sampled"]
    counts: Counts
    history: History
    loop: Loop
    runs: list[RunInFlight]
    recent: list[EndedRun]
    slowest: list[EndedRun]
    failures: list[Failure]
    interrupts: list[Question]
    journal: JournalProgress | None
    left_out: dict[str, int]
