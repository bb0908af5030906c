"""Retention: how much of a thread its checkpoint saver keeps. On the loop.

What breaks without it: LangGraph saves a checkpoint for each step and keeps them all, so the
storage of a thread that is used every day grows without a bound.

After a run has been answered, only the latest checkpoints of its thread are kept. What belongs to
the others is deleted with them: their writes, the values that they alone refer to, and what
subgraphs have saved in steps that began at them. A thread that asks, or whose run has not been
answered, is not changed: it may be continued.
"""

# ruff: noqa: S608 - no statement contains user input
from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rxlanggraph.bridge.graphs.configs import layers_of
from rxlanggraph.bridge.graphs.savers import (
    IN_MEMORY,
    POSTGRES,
    SQLITE,
    for_saver,
    postgres_transaction,
    sqlite_transaction,
    values_of,
)
from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.validation import check_whole

__all__ = ["Retention", "check_deletion", "check_retention", "is_unfinished", "prune_thread"]

# The module of LangGraph's interface for savers, whose methods only say that they are missing.
_INTERFACE = "langgraph.checkpoint.base"
# In the metadata of checkpoints with channels that are rebuilt from earlier checkpoints.
_OF_DELTAS = ("counters_since_delta_snapshot", "delta_writes_versioned")


class Retention(NamedTuple):
    """What is kept of a thread after its run was answered."""

    saver: Any
    keep: int
    """How many checkpoints; 0 deletes the thread."""


def check_retention(graph: Any, saver: Any, keep: object) -> None:
    """Check that only ``keep`` checkpoints of each thread of ``graph`` can be kept.

    Any thread; never blocks.

    Raises:
        InvalidTypeError: ``keep`` is not a whole number.
        InvalidArgumentError: It is negative, or the graph or its saver cannot do that.
    """
    check_whole("keep_checkpoints", keep, least=0)
    if keep == 0:
        check_deletion("keep_checkpoints=0", graph, saver)
        return
    _check_saver("keep_checkpoints", graph, saver)
    if for_saver(saver, _SAVERS) is None and (keep != 1 or not _implements(saver, "aprune")):
        raise InvalidArgumentError(
            f"keep_checkpoints={keep} is for threads in an InMemorySaver, AsyncSqliteSaver or "
            f"AsyncPostgresSaver, and {saver!r} is none of these; use 1 if that has aprune, or 0 "
            "to delete answered threads"
        )
    delta = next(_delta_channels(graph), None)
    if delta is not None:
        raise InvalidArgumentError(
            f"the channel {delta!r} of {graph!r} is rebuilt from earlier checkpoints, so these "
            "have to be kept; use keep_checkpoints=0 to delete answered threads, or none"
        )


def check_deletion(what: str, graph: Any, saver: Any) -> None:
    """Check that threads of ``graph`` can be deleted. Any thread; never blocks.

    Args:
        what: What deletes them, for the error message.
        graph: The graph.
        saver: Its saver, if it has one.

    Raises:
        InvalidArgumentError: They cannot.
    """
    _check_saver(what, graph, saver)
    if not _implements(saver, "adelete_thread"):
        raise InvalidArgumentError(
            f"{what} deletes threads, and {saver!r} has no adelete_thread; give it one, or use "
            "another checkpointer"
        )


def _check_saver(what: str, graph: Any, saver: Any) -> None:
    if saver is None:
        raise InvalidArgumentError(
            f"{what} is for graphs that keep threads, and {graph!r} keeps none; leave it out, or "
            "compile the graph with a checkpointer"
        )


def _implements(saver: Any, method: str) -> bool:
    function = getattr(type(saver), method, None)
    return function is not None and getattr(function, "__module__", None) != _INTERFACE


def _delta_channels(graph: Any) -> Iterator[str]:
    *_, innermost = layers_of(graph)
    subgraphs = getattr(innermost, "get_subgraphs", None)
    found = [] if subgraphs is None else [each for _, each in subgraphs(recurse=True)]
    for each in (innermost, *found):
        for name, channel in (getattr(each, "channels", None) or {}).items():
            if type(channel).__name__ == "DeltaChannel":
                yield name


async def prune_thread(saver: Any, thread_id: str, keep: int) -> None:
    """Delete all but the ``keep`` latest checkpoints of a thread; with 0, the thread.

    No run may be at work on it. If cancelled, it has deleted all that it was to, or nothing.

    Args:
        saver: One that `check_retention` accepts.
        thread_id: The thread.
        keep: How many checkpoints to keep.

    Raises:
        Exception: Whatever the saver raises.
    """
    if keep == 0:
        await saver.adelete_thread(thread_id)
    elif keep == 1 and _implements(saver, "aprune"):
        await saver.aprune([thread_id], strategy="keep_latest")
    else:
        prune = for_saver(saver, _SAVERS)
        assert prune is not None
        await prune(saver, thread_id, keep)


def is_unfinished(found: Any) -> bool:
    """Whether a thread waits for an answer, or can be continued. Any thread; never blocks.

    Args:
        found: The ``CheckpointTuple`` of its latest checkpoint.
    """
    if found.pending_writes:
        return True  # a question, an error, or a part of a step
    values = found.checkpoint["channel_values"]
    return any(
        name.startswith(_TRIGGERS) or (name.startswith(_TO_DO) and _is_filled(value))
        for name, value in values.items()
    )


# Channels of LangGraph with the input, or a node that is due: gone, a step later.
_TRIGGERS = ("__start__", "branch:to:")
# Those with tasks made by ``Send``, and with the nodes that another one waits for: then empty.
_TO_DO = ("__pregel_tasks", "join:")


def _is_filled(value: Any) -> bool:
    return any(value) if isinstance(value, list | tuple) else bool(value)


class _Saved(NamedTuple):
    """A checkpoint of a thread."""

    namespace: str
    checkpoint_id: str
    metadata: Mapping[str, Any]


def _surplus(thread_id: str, saved: Iterable[_Saved], keep: int) -> dict[str, list[str]]:
    """Which of the checkpoints of a thread are to be deleted: their ids by namespace."""
    namespaces: dict[str, list[_Saved]] = {}
    for each in saved:
        if any(mark in each.metadata for mark in _OF_DELTAS):
            raise NotImplementedError(
                f"thread {thread_id!r} has channels that are rebuilt from earlier checkpoints"
            )
        namespaces.setdefault(each.namespace, []).append(each)
    # Ids are sortable by time.
    own = sorted((each.checkpoint_id for each in namespaces.get("", ())), reverse=True)
    oldest = min(own[:keep], default="")
    surplus: dict[str, list[str]] = {}
    for namespace, checkpoints in namespaces.items():
        checkpoints.sort(key=lambda each: each.checkpoint_id, reverse=True)
        deleted = [
            each.checkpoint_id
            for place, each in enumerate(checkpoints)
            if place >= keep or _belongs_to_earlier(each, oldest)
        ]
        if deleted:
            surplus[namespace] = deleted
    return surplus


def _belongs_to_earlier(saved: _Saved, oldest: str) -> bool:
    """Whether it is of a subgraph's call, in a step that began before the oldest kept checkpoint.

    A subgraph that keeps a memory of its own has the names of nodes alone in its namespace.
    """
    if ":" not in saved.namespace:
        return False
    began = (saved.metadata.get("parents") or {}).get("")
    return began is not None and began < oldest


async def _prune_in_memory(saver: Any, thread_id: str, keep: int) -> None:
    stored = saver.storage.get(thread_id, {})
    saved = [
        _Saved(namespace, each, saver.serde.loads_typed(metadata))
        for namespace, checkpoints in stored.items()
        for each, (_, metadata, _) in checkpoints.items()
    ]
    for namespace, deleted in _surplus(thread_id, saved, keep).items():
        checkpoints = stored[namespace]
        freed = _versions(saver, [checkpoints.pop(each) for each in deleted])
        for key in freed - _versions(saver, checkpoints.values()):
            saver.blobs.pop((thread_id, namespace, *key), None)
        for each in deleted:
            saver.writes.pop((thread_id, namespace, each), None)
        for each, (checkpoint, metadata, parent) in list(checkpoints.items()):
            if parent in deleted:
                checkpoints[each] = (checkpoint, metadata, None)
        if not checkpoints:
            del stored[namespace]


def _versions(saver: Any, stored: Iterable[tuple[Any, ...]]) -> set[tuple[str, Any]]:
    """The channels that checkpoints in memory refer to, each with its version."""
    return {
        version
        for checkpoint, *_ in stored
        for version in saver.serde.loads_typed(checkpoint)["channel_versions"].items()
    }


async def _prune_in_sqlite(saver: Any, thread_id: str, keep: int) -> None:
    async with sqlite_transaction(saver) as cursor:
        await cursor.execute(_SELECT.format("?"), (thread_id,))
        saved = [
            _Saved(namespace, each, json.loads(metadata) if metadata else {})
            for namespace, each, metadata in map(values_of, await cursor.fetchall())
        ]
        surplus = _surplus(thread_id, saved, keep)
        rows = [(thread_id, ns, each) for ns, deleted in surplus.items() for each in deleted]
        for table in ("writes", "checkpoints"):
            await cursor.executemany(
                f"DELETE FROM {table} "
                "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                rows,
            )
        await cursor.executemany(
            "UPDATE checkpoints SET parent_checkpoint_id = NULL "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND parent_checkpoint_id = ?",
            rows,
        )


_SELECT = "SELECT checkpoint_ns, checkpoint_id, metadata FROM checkpoints WHERE thread_id = {0}"
# Values that only checkpoints refer to that are to be deleted.
_DELETE_VALUES = """
    DELETE FROM checkpoint_blobs AS blob
    USING checkpoints AS gone, jsonb_each_text(gone.checkpoint -> 'channel_versions') AS channel
    WHERE gone.thread_id = %(thread)s AND gone.checkpoint_ns = %(ns)s
        AND gone.checkpoint_id = ANY(%(ids)s)
        AND blob.thread_id = gone.thread_id AND blob.checkpoint_ns = gone.checkpoint_ns
        AND blob.channel = channel.key AND blob.version = channel.value
        AND NOT EXISTS (
            SELECT FROM checkpoints AS kept
            WHERE kept.thread_id = blob.thread_id AND kept.checkpoint_ns = blob.checkpoint_ns
                AND kept.checkpoint_id <> ALL(%(ids)s)
                AND kept.checkpoint -> 'channel_versions' ->> blob.channel = blob.version
        )
"""
_OF_THREAD = "thread_id = %(thread)s AND checkpoint_ns = %(ns)s"
_CUT_PARENTS = f"""
    UPDATE checkpoints SET parent_checkpoint_id = NULL
    WHERE {_OF_THREAD} AND parent_checkpoint_id = ANY(%(ids)s)
"""
_PRUNE_IN_POSTGRES = (
    _DELETE_VALUES,
    f"DELETE FROM checkpoint_writes WHERE {_OF_THREAD} AND checkpoint_id = ANY(%(ids)s)",
    f"DELETE FROM checkpoints WHERE {_OF_THREAD} AND checkpoint_id = ANY(%(ids)s)",
    _CUT_PARENTS,
)


async def _prune_in_postgres(saver: Any, thread_id: str, keep: int) -> None:
    async with postgres_transaction(saver) as cursor:
        await cursor.execute(_SELECT.format("%s"), (thread_id,))
        saved = [_Saved(*values_of(row)) for row in await cursor.fetchall()]
        for namespace, deleted in _surplus(thread_id, saved, keep).items():
            named = {"thread": thread_id, "ns": namespace, "ids": deleted}
            for statement in _PRUNE_IN_POSTGRES:
                await cursor.execute(statement, named)


_SAVERS: dict[str, Callable[[Any, str, int], Awaitable[None]]] = {
    IN_MEMORY: _prune_in_memory,
    SQLITE: _prune_in_sqlite,
    POSTGRES: _prune_in_postgres,
}
