"""``rxlanggraph graphs``: the graphs of a LangGraph project."""

from __future__ import annotations

import dataclasses
import json

import click

from rxlanggraph.cli.completion import complete_file
from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.project import PROJECT_FILE, read_project
from rxlanggraph.cli.stdio import print_stdout
from rxlanggraph.cli.tables import columns

__all__ = ["graphs"]


@click.command(epilog="Exit status: 0; 2 if langgraph.json is missing or wrong.")
@click.option(
    "--project",
    metavar="FILE",
    default=PROJECT_FILE,
    show_default=True,
    shell_complete=complete_file,
    help="The project's langgraph.json.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def graphs(project: str, *, as_json: bool) -> int:
    """List the graphs of a LangGraph project.

    Shows their names, locations and descriptions. Nothing is imported. 'rxlanggraph run NAME' runs
    one of them.
    """
    found = read_project(project)
    listed = [dataclasses.asdict(graph) for graph in found.graphs.values()]
    if as_json:
        print_stdout(json.dumps({"project": found.file, "graphs": listed}))
    elif listed:
        rows = [(each["name"], each["place"], each["description"] or "") for each in listed]
        print_stdout(columns(rows))
    return ExitStatus.OK
