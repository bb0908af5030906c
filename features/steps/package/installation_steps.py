from __future__ import annotations

import json
import tempfile
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from support.cli.plain import fill_plain_site, run_plain

GRAPH = """
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

class State(TypedDict):
    n: int

builder = StateGraph(State)
builder.add_node("double", lambda state: {"n": state["n"] * 2})
builder.add_edge(START, "double")
builder.add_edge("double", END)
graph = builder.compile()
"""
COUNT = """
import asyncio
from rxlanggraph.state import open_state

async def main():
    async with open_state("sqlite:///state.db") as state:
        print(await state.increment_counter("n"))

asyncio.run(main())
"""


@given("an interpreter with the packages of the plain installation alone")
def step_an_interpreter_with_the_plain_installation_alone(context: Context) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    context.site, context.folder = Path(folder.name, "site"), Path(folder.name, "work")
    context.site.mkdir()
    context.folder.mkdir()
    fill_plain_site(context.site)


@when("it runs a graph of LangGraph with a journal in a file, and opens a state in another file")
def step_it_runs_a_graph_with_a_journal_and_opens_a_state(context: Context) -> None:
    (context.folder / "graphs.py").write_text(GRAPH)
    (context.folder / "in.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    command = "-m rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --journal run.sqlite"
    context.ran = run_plain(context.site, *command.split(), folder=context.folder)
    context.counted = run_plain(context.site, "-c", COUNT, folder=context.folder)


@then("every message of the journal is answered, and the state has counted to 1")
def step_every_message_is_answered_and_the_state_has_counted(context: Context) -> None:
    assert context.ran.returncode == 0, context.ran.stderr
    lines = (context.folder / "out.jsonl").read_text().splitlines()
    outputs = sorted(json.loads(line)["content"]["n"] for line in lines)
    assert outputs == [2, 4], lines
    assert (context.folder / "run.sqlite").exists()
    assert context.counted.stdout == "1\n", context.counted.stderr


@when("that interpreter imports {package}")
def step_that_interpreter_imports_package(context: Context, package: str) -> None:
    context.ran = run_plain(context.site, "-c", f"import {package}", folder=context.folder)


@then("it has found no module of the name {package}")
def step_it_has_found_no_module_of_the_name(context: Context, package: str) -> None:
    assert f"No module named '{package}'" in context.ran.stderr, context.ran.stderr
