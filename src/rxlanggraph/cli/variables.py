"""Options from environment variables, each named after its command and its option.

click would name them after the parameters of its functions, such as ``AS_JSON``, take one named
VERSION for ``--version``, and ignore the misspelt ones.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping

import click

from rxlanggraph.cli.passwords import PASSWORDS
from rxlanggraph.cli.stdio import print_stderr

__all__ = ["long_name", "name_variables", "variable_of", "warn_of_unknown_variables"]

_PREFIX = "RXLANGGRAPH"


def name_variables(group: click.Group) -> None:
    """Have each option of ``group`` and its commands read its variable. Once, at the import."""
    for variable, option in _options(group, _PREFIX):
        own = [option.envvar] if isinstance(option.envvar, str) else []
        option.envvar = [*own, variable]


def variable_of(parameter: click.Parameter) -> str:
    """Return the variable that a value of ``parameter`` was read from."""
    return next(name for name in parameter.envvar or () if os.environ.get(name))


def warn_of_unknown_variables(commands: Mapping[str, click.Command], name: str) -> None:
    """Print a warning of each variable with the prefix of a command that sets nothing.

    It is not an error: variables of other programs may have such names, as those that Kubernetes
    makes of the names of services.

    Args:
        commands: The commands.
        name: The one that is about to run.
    """
    prefix = f"{_variable(_PREFIX, name)}_"
    known = [variable for variable, _ in _options(commands[name], prefix[:-1])] + [*PASSWORDS]
    # Without the prefix: with it, all are near to each other.
    names = [each.removeprefix(prefix) for each in known if each.startswith(prefix)]
    for variable in sorted(os.environ):
        if variable.startswith(prefix) and variable not in known:
            near = difflib.get_close_matches(variable.removeprefix(prefix), names, n=1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            print_stderr(f"{variable} is not the variable of an option of {name!r}{hint}")


def long_name(parameter: click.Parameter) -> str:
    """Return the name of an option, without dashes before it."""
    return max(parameter.opts, key=len).lstrip("-")


def _options(command: click.Command, prefix: str) -> Iterator[tuple[str, click.Option]]:
    """Yield the options of a command, and of the commands in it, with their variables."""
    for option in command.params:
        # Not --version: RXLANGGRAPH_VERSION is a name for something else.
        if isinstance(option, click.Option) and (option.expose_value or not option.is_flag):
            yield _variable(prefix, long_name(option)), option
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _options(each, _variable(prefix, name))


def _variable(prefix: str, name: str) -> str:
    return f"{prefix}_{name.replace('-', '_').upper()}"
