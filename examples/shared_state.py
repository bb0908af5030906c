"""Eight agents survey the airports of all states together: a queue, a counter, a configuration.

Run it in one process, or, with a database, in as many as you like:

    python shared_state.py
    python shared_state.py sqlite:///survey.db

Each agent is a LangGraph graph. Its nodes reach what all agents share through the context of the
run: `runtime.context.shared`. Nothing is lost or done twice, however the agents interleave:

- The **queue** has one item per state, added once by its key. An agent claims an item, and
  completes it with its result, once. If an agent dies, its item returns to the queue.
- The **counter** of surveyed airports is incremented on the server. It shows progress only: if an
  agent dies between counting and completing, its airports are counted twice. Results are not.
- The **configuration** is read with its version, and changed by `safe_update`: each agent adds its
  name, and the northernmost airport it has found, unless one further north is there already.

`survey` computes the same in plain Python.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from rxlanggraph.state import Claim, State, Task, open_state

AIRPORTS = Path(__file__).parent / "data" / "airports.csv"


@dataclass(frozen=True)
class Agent:
    """The context of a run: who runs, and what all of them share."""

    name: str
    shared: State


class Survey(TypedDict, total=False):
    """What one run of an agent knows: its claim, and what it has measured."""

    claim: Claim | None
    count: int
    northernmost: list[Any]


async def join(state: Survey, runtime: Runtime[Agent]) -> Survey:
    """Add the agent's name to the configuration, which others change at the same time."""
    agent = runtime.context

    def with_name(configuration: dict[str, Any]) -> dict[str, Any]:
        return {**configuration, "agents": sorted({*configuration["agents"], agent.name})}

    await agent.shared.safe_update("configuration", with_name, attempts=100)
    return {}


async def take(state: Survey, runtime: Runtime[Agent]) -> Survey:
    """Claim a state to survey. No other agent gets it while this one lives."""
    agent = runtime.context
    return {"claim": await agent.shared.claim_task("states", worker=agent.name)}


async def measure(state: Survey) -> Survey:
    """Look at the airports of the claimed state."""
    assert state["claim"] is not None
    airports = state["claim"].item
    await asyncio.sleep(0)  # where a real agent would ask a model
    return {"count": len(airports), "northernmost": max(airports, key=lambda row: row[1])}


async def report(state: Survey, runtime: Runtime[Agent]) -> Survey:
    """Publish what was found, and complete the item."""
    shared, claim, found = runtime.context.shared, state["claim"], state["northernmost"]
    assert claim is not None

    def with_northernmost(configuration: dict[str, Any]) -> dict[str, Any]:
        known = configuration["northernmost"]
        if known is not None and known[1] >= found[1]:
            return configuration
        return {**configuration, "northernmost": found}

    await shared.safe_update("configuration", with_northernmost, attempts=100)
    await shared.increment_counter("airports", state["count"])
    await claim.complete({"count": state["count"], "northernmost": found[0]})
    return {}


def more(state: Survey) -> bool:
    """Whether there was a state to survey."""
    return state["claim"] is not None


def build() -> Any:
    """Return the compiled graph of an agent."""
    builder = StateGraph(Survey, context_schema=Agent)
    builder.add_node("join", join)
    builder.add_node("take", take)
    builder.add_node("measure", measure)
    builder.add_node("report", report)
    builder.add_edge(START, "join")
    builder.add_edge("join", "take")
    builder.add_conditional_edges("take", more, {True: "measure", False: END})
    builder.add_edge("measure", "report")
    builder.add_edge("report", "take")
    return builder.compile()


async def work_together(shared: State, agents: int = 8) -> dict[str, Any]:
    """Have the agents survey what is in the data, and return what they have found."""
    await shared.set_if_not_exists("configuration", {"agents": [], "northernmost": None}, ttl=None)
    await shared.add_tasks("states", [Task(rows, key=name) for name, rows in by_state().items()])
    graph = build()
    runs = (
        graph.ainvoke({}, {"recursion_limit": 1000}, context=Agent(f"agent {number}", shared))
        for number in range(1, agents + 1)
    )
    await asyncio.gather(*runs)
    configuration, version = await shared.get("configuration")
    return {
        "airports": (await shared.get("airports")).value,
        "results": await shared.results("states", keys=list(by_state())),
        "configuration": configuration,
        "version": version,
    }


def by_state() -> dict[str, list[list[Any]]]:
    """The airports of each state, as code and latitude."""
    states: dict[str, list[list[Any]]] = defaultdict(list)
    with AIRPORTS.open(newline="") as file:
        for row in csv.DictReader(file):
            states[row["state"]].append([row["iata"], float(row["latitude"])])
    return dict(states)


def survey(states: Iterable[tuple[str, list[list[Any]]]]) -> dict[str, dict[str, Any]]:
    """Return the results that the agents must have, computed without them."""
    return {
        name: {"count": len(rows), "northernmost": max(rows, key=lambda row: row[1])[0]}
        for name, rows in states
    }


async def main(url: str) -> None:
    """Survey, and print what was found."""
    async with open_state(url, namespace="airports") as state:
        found = await work_together(state)
    code, latitude = found["configuration"]["northernmost"]
    agents = len(found["configuration"]["agents"])
    print(f"{agents} agents have surveyed {found['airports']} airports", end=" ")
    print(f"in {len(found['results'])} states; the northernmost is {code}, at {latitude:.2f}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory:"))
