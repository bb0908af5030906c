"""``rxlanggraph completion``: lets a shell complete commands, options, files and graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from rxlanggraph.cli.errors import CommandError, ExitStatus
from rxlanggraph.cli.project import PROJECT_FILE, read_project
from rxlanggraph.cli.stdio import print_stdout

__all__ = ["complete_file", "complete_graph", "completion"]

_PROGRAM = "rxlanggraph"
_VARIABLE = "_RXLANGGRAPH_COMPLETE"


@click.command(
    epilog="""\b
For bash, in ~/.bashrc:  eval "$(rxlanggraph completion bash)"
For zsh, in ~/.zshrc:    eval "$(rxlanggraph completion zsh)"
For fish:                rxlanggraph completion fish > ~/.config/fish/completions/rxlanggraph.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a script that teaches a shell to complete commands.

    It also completes options, files and the names of graphs.
    """
    made = get_completion_class(shell)
    assert made is not None
    print_stdout(made(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())
    return ExitStatus.OK


def complete_graph(
    context: click.Context, _: click.Parameter, incomplete: str
) -> Iterable[CompletionItem]:
    """Complete a graph: the names in the project's langgraph.json, or else a file."""
    file = context.params.get("project") or PROJECT_FILE
    try:
        graphs = read_project(file).graphs.values() if os.path.isfile(file) else ()
    except CommandError:
        graphs = ()
    found = [
        CompletionItem(graph.name, help=graph.description or graph.place)
        for graph in graphs
        if graph.name.startswith(incomplete)
    ]
    return found or [CompletionItem(incomplete, type="file")]


def complete_file(
    _: click.Context, __: click.Parameter, incomplete: str
) -> Iterable[CompletionItem]:
    """Complete the path of a file."""
    return [CompletionItem(incomplete, type="file")]
