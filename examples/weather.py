"""The bridge inside a reactive pipeline: each month of Seattle's weather is a thread.

    python weather.py

Rows arrive as a stream, `bridge.invoke` runs a LangGraph graph over them, and the results continue
as a stream, of which the last one of each month is printed. The graph keeps in its checkpoints how
much it has rained in the month so far, and the longest dry spell. The days of a month must
therefore run in order and one at a time, while the 48 months are independent of each other.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import reactivex as rx
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge, StreamMessage

DATA = Path(__file__).parent / "data" / "seattle-weather.csv"


class Day(TypedDict):
    """The content of a message: the columns of a row that the graph uses."""

    date: str
    precipitation: float


class Month(Day, total=False):
    """What a thread remembers from one day to the next."""

    days: int
    rain: float
    dry_spell: int
    longest_dry_spell: int


async def take_in(state: Month) -> dict[str, Any]:
    """Add one day to its month."""
    await asyncio.sleep(0)  # where a real graph would ask a model
    dry_spell = 0 if state["precipitation"] else state.get("dry_spell", 0) + 1
    return {
        "days": state.get("days", 0) + 1,
        "rain": state.get("rain", 0.0) + state["precipitation"],
        "dry_spell": dry_spell,
        "longest_dry_spell": max(dry_spell, state.get("longest_dry_spell", 0)),
    }


def build() -> Any:
    """Return the compiled graph, with an empty memory."""
    builder = StateGraph(Month, input_schema=Day)
    builder.add_node("take_in", take_in)
    builder.add_edge(START, "take_in")
    builder.add_edge("take_in", END)
    return builder.compile(checkpointer=InMemorySaver())


def rows() -> list[Day]:
    """Return the days of the file, in order."""
    with DATA.open(newline="", encoding="utf-8") as file:
        return [
            Day(date=row["date"], precipitation=float(row["precipitation"]))
            for row in csv.DictReader(file)
        ]


def month_of(day: Mapping[str, Any]) -> str:
    """Return the thread that a day belongs to: ``2012/01``."""
    return str(day["date"][:7])


def months(bridge: RxPyLangGraphBridge, days: Iterable[Day]) -> rx.Observable[StreamMessage]:
    """Return a stream of the last result of each month."""
    return rx.from_iterable(days).pipe(
        bridge.invoke(build(), thread_id=month_of),
        ops.group_by(lambda result: result.thread_id),
        ops.flat_map(lambda month: month.pipe(ops.last())),
    )


def main() -> None:
    """Print a line for each month."""
    with RxPyLangGraphBridge() as bridge:
        results = months(bridge, rows()).pipe(ops.to_list()).run()
    for result in sorted(results, key=lambda result: result.thread_id or ""):
        month = result.content
        print(
            f"{result.thread_id}  {month['days']} days, {month['rain']:6.1f} mm of rain, "
            f"longest dry spell {month['longest_dry_spell']} days"
        )


if __name__ == "__main__":
    main()
