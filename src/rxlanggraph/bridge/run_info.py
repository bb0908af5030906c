"""What a run is doing at the moment, for snapshots: determined only when it is asked for.

LangGraph runs each node in a task, in whose context it keeps the config of the node. So the active
nodes are found in the loop's tasks. What breaks with a record of each node: every run would pay for
snapshots that are hardly ever taken.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from contextvars import Context, ContextVar
from typing import Any, TypeAlias

from rxlanggraph.bridge.run import Phase, Run, RunScope, run_scope
from rxlanggraph.concurrency import interpreter
from rxlanggraph.concurrency.stacks import context_of, tasks_of
from rxlanggraph.registry import Entry, TaskInfo, TaskState

__all__ = ["NodeFinder", "info_of_run", "node_path", "nodes_at_work"]

_Config: TypeAlias = Mapping[str, Any]
_Loop: TypeAlias = asyncio.AbstractEventLoop


def info_of_run(
    run: Run, entry: Entry, now: float, nodes: Mapping[RunScope | None, str]
) -> TaskInfo:
    """Make the info of ``run``. Any thread; never blocks; without the lock.

    Args:
        run: The run.
        entry: What the registry knows of it.
        now: The time of the snapshot, by the clock of the bridge.
        nodes: What `nodes_at_work` has found.
    """
    number, name, thread_id, admitted = entry
    # Read once: it may start, or end, meanwhile.
    phase, scope = run.phase, run.scope
    has_begun = phase is Phase.RUNNING
    age = now - admitted
    waited = min(age, max(0.0, run.since - admitted)) if has_begun else age
    return TaskInfo(
        number,
        name,
        thread_id,
        age,
        _state_of(run, phase),
        run.message.id,
        waited,
        max(1, run.attempts) if has_begun else 0,
        nodes.get(scope),
    )


def _state_of(run: Run, phase: Phase) -> TaskState:
    if phase is Phase.ENDED:
        return "finished"
    if run.done():  # asked first: it may be resolved meanwhile
        result = run.result_nowait()
        return "finished" if result is not None and result.status == "ok" else "cancelling"
    task = run.task
    if run.interruption is not None or (task is not None and task.cancelling() > 0):
        return "cancelling"
    if phase is Phase.RUNNING:
        return "running"
    return "waiting_for_thread" if run.behind else "queued"


def nodes_at_work(runs: Iterable[Run]) -> dict[RunScope | None, str]:
    """Find the nodes at work in those of ``runs`` that have begun. Any thread; never blocks.

    One look at the tasks of each loop serves all runs, which belong to one bridge.

    Returns:
        By the scope of a run, the names of its nodes; without the runs of which no node is found.
    """
    scopes, loops = set(), set()
    elsewhere: dict[RunScope | None, str | None] = {}
    for run in runs:
        scope, away = run.scope, run.away
        if run.nodes_elsewhere is not None:
            elsewhere[scope] = _nodes_elsewhere(run.nodes_elsewhere)
        elif scope is not None:
            scopes.add(scope)
            loops.add(run.get_loop() if away is None else away.loop)
    configs: dict[RunScope | None, list[_Config]] = {}
    for loop in loops:
        for scope, of_scope in _configs(loop).items():
            configs.setdefault(scope, []).extend(of_scope)
    found = elsewhere | {scope: _names(configs.get(scope, ())) for scope in scopes}
    return {scope: names for scope, names in found.items() if names is not None}


class NodeFinder:
    """Finds the nodes at work in single runs. Confined to the loop.

    Runs that ask within one iteration of the loop share one look at its tasks: if the time of ten
    thousand is over at once, each would otherwise look at the tasks of all others.
    """

    def __init__(self) -> None:
        # By the loop on which graphs are called.
        self._found: dict[_Loop | None, dict[RunScope | None, list[_Config]]] = {}

    def nodes_of(self, run: Run) -> str | None:
        """Return the names of the nodes at work in ``run``; None if none is found."""
        if run.nodes_elsewhere is not None:
            return _nodes_elsewhere(run.nodes_elsewhere)
        away = run.away
        loop = run.get_loop() if away is None else away.loop
        if not self._found:
            asyncio.get_running_loop().call_soon(self._found.clear, context=Context())
        if loop not in self._found:
            self._found[loop] = _configs(loop)
        return _names(self._found[loop].get(run.scope, ()))


def _configs(loop: _Loop | None) -> dict[RunScope | None, list[_Config]]:
    """Find the configs of the tasks of ``loop``, by the scope of the run that a task belongs to."""
    module = sys.modules.get("langchain_core.runnables.config")
    if module is None or loop is None:  # no graph has been imported, or none is called
        return {}
    if not interpreter.can_look_into(loop):
        return {}
    try:
        tasks = tasks_of(loop)
    except RuntimeError:  # more tasks come and go than can be listed
        return {}
    variable: ContextVar[_Config | None] = module.var_child_runnable_config
    found: dict[RunScope | None, list[_Config]] = {}
    for task in tasks:
        context = context_of(task)
        config = context.get(variable)
        if config is not None:
            found.setdefault(context.get(run_scope), []).append(config)
    return found


def _names(configs: Iterable[_Config]) -> str | None:
    """Return the names of the innermost nodes that ``configs`` are those of; None without any."""
    paths = {path for each in configs if (path := node_path(each.get("metadata"))) is not None}
    return ", ".join(_innermost(paths)) or None


def _nodes_elsewhere(nodes: dict[int, str]) -> str | None:
    at_work = list(nodes.values())  # one call of a built-in, while the loop changes them
    return ", ".join(_innermost(set(at_work))) or None


def node_path(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the node that LangGraph has noted in the metadata of a config. Any thread.

    In a subgraph, behind the nodes that it is called by: ``outer|inner``.
    """
    if not metadata or "langgraph_node" not in metadata:
        return None
    # As in "outer:8d35...|inner:2f01...", with a number between them for the second call of a node.
    namespace = str(metadata.get("langgraph_checkpoint_ns") or metadata["langgraph_node"])
    parts = (part.partition(":")[0] for part in namespace.split("|"))
    return "|".join(part for part in parts if not part.isdecimal())


def _innermost(paths: set[str]) -> list[str]:
    """Without the nodes that only wait for one of their subgraph's."""
    return sorted(
        path for path in paths if not any(other.startswith(f"{path}|") for other in paths)
    )
