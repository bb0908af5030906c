"""A running survey of airports: one LangGraph thread per state, each with a memory of its own.

Run it over the file, from the folder of this example:

    rxlanggraph run airports.py:graph --input data/airports.csv --thread-key state

Every message is one row. The graph keeps in its checkpoints how many airports of the thread's
state it has seen, the sum of their latitudes, and the northernmost so far; whenever an airport
lies further north than all before it, the graph takes a detour and notes that record. Each result
therefore depends on every earlier message of its thread, and on their order. If two rows of one
state were processed at the same time, the result would be wrong; the command never does that.

`survey` computes the same from the same rows in plain Python.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph


class Row(TypedDict):
    """A row of data/airports.csv: the content of a message."""

    iata: str
    name: str
    city: str
    state: str
    country: str
    latitude: str
    longitude: str


class Survey(TypedDict):
    """The content of a result: the thread's state as surveyed up to this airport."""

    iata: str
    state: str
    airports: int
    mean_latitude: float
    northernmost: str
    records: int


class State(Row, Survey):
    """What a thread remembers from one message to the next."""

    latitude_sum: float
    highest_latitude: float


async def measure(state: State) -> dict[str, Any]:
    """Add this airport to the running count and mean."""
    await asyncio.sleep(0)  # where a real graph would ask a model
    airports = state.get("airports", 0) + 1
    latitude_sum = state.get("latitude_sum", 0.0) + float(state["latitude"])
    return {
        "airports": airports,
        "latitude_sum": latitude_sum,
        "mean_latitude": latitude_sum / airports,
    }


def is_record(state: State) -> bool:
    """Whether this airport lies further north than all before it in its state."""
    return float(state["latitude"]) > state.get("highest_latitude", float("-inf"))


async def note_record(state: State) -> dict[str, Any]:
    """Remember this airport as the northernmost so far."""
    await asyncio.sleep(0)
    return {
        "highest_latitude": float(state["latitude"]),
        "northernmost": state["iata"],
        "records": state.get("records", 0) + 1,
    }


def build() -> Any:
    """Return the compiled graph, with an empty memory."""
    builder = StateGraph(State, input_schema=Row, output_schema=Survey)
    builder.add_node("measure", measure)
    builder.add_node("note_record", note_record)
    builder.add_edge(START, "measure")
    builder.add_conditional_edges("measure", is_record, {True: "note_record", False: END})
    builder.add_edge("note_record", END)
    return builder.compile(checkpointer=InMemorySaver())


graph = build()


def survey(rows: Iterable[Mapping[str, str]]) -> Iterator[Survey]:
    """Yield the result that the graph must return for each row, computed without it."""
    latitudes: dict[str, list[float]] = {}
    records: dict[str, list[str]] = {}
    for row in rows:
        before = latitudes.setdefault(row["state"], [])
        latitude = float(row["latitude"])
        if latitude > max(before, default=float("-inf")):
            records.setdefault(row["state"], []).append(row["iata"])
        before.append(latitude)
        noted = records[row["state"]]
        total = 0.0
        for value in before:  # not sum(), which is more exact from Python 3.12 on
            total += value
        yield Survey(
            iata=row["iata"],
            state=row["state"],
            airports=len(before),
            mean_latitude=total / len(before),
            northernmost=noted[-1],
            records=len(noted),
        )
