"""Options from a file: rxlanggraph.toml, with a table for each command.

They become click's defaults, so an option on the command line has precedence over an environment
variable, and that over the file.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rxlanggraph.cli.errors import SettingsError
from rxlanggraph.cli.variables import long_name, variable_of

__all__ = ["SETTINGS_FILE", "load_settings", "source_of"]

SETTINGS_FILE = "rxlanggraph.toml"
_KEY = "rxlanggraph.settings"  # in the meta of click's context


def load_settings(context: click.Context, _: click.Parameter, file: str | None) -> str | None:
    """Make the file's options the defaults of the commands; a callback of the group's option.

    Blocks as reading does.

    Raises:
        SettingsError: The file cannot be read, or names what does not exist.
    """
    if context.resilient_parsing:  # completing words: a wrong file must not be an error
        return file
    if file is None:
        if not os.path.isfile(SETTINGS_FILE):
            return None
        file = SETTINGS_FILE
    group = context.command
    assert isinstance(group, click.Group)
    context.default_map = {
        name: _options(file, name, table, group.commands.get(name), group.commands)
        for name, table in _parsed(file).items()
    }
    context.meta[_KEY] = file
    return file


def source_of(error: click.ClickException) -> str | None:
    """Return where the wrong value of ``error`` comes from; None for the command line."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None or parameter.name is None:
        return None
    source = context.get_parameter_source(parameter.name)
    if source is ParameterSource.ENVIRONMENT:
        return f"the environment variable {variable_of(parameter)}"
    if source is ParameterSource.DEFAULT_MAP:
        return f"{_table_of(context)}.{long_name(parameter)} in {context.meta[_KEY]}"
    return None


def _table_of(context: click.Context) -> str:
    """Return the name of a command's table, which is within that of its group."""
    names = []
    while context.parent is not None:
        names.append(str(context.info_name))
        context = context.parent
    return ".".join(reversed(names))


def _parsed(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise SettingsError(
            f"cannot read {file}: {error.strerror or error}; give a readable file to --settings"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not TOML: {error}; correct it") from error


def _options(
    file: str,
    name: str,
    table: Any,
    command: click.Command | None,
    commands: Iterable[str],
) -> dict[str, Any]:
    if command is None:
        raise SettingsError(
            f"{file}: {name!r} is not a command{_near(name, commands)}; the tables are "
            f"{', '.join(commands)}"
        )
    if not isinstance(table, dict):
        raise SettingsError(f"{file}: {name} is {table!r}; write its options below [{name}]")
    known = {long_name(each): each for each in command.params if isinstance(each, click.Option)}
    found = {}
    commands = command.commands if isinstance(command, click.Group) else {}
    for key, value in table.items():
        if key in commands and isinstance(value, dict):
            found[key] = _options(file, f"{name}.{key}", value, commands[key], commands)
            continue
        option = known.get(key.replace("_", "-"))
        if option is None or option.name is None:
            raise SettingsError(
                f"{file}: {name}.{key} is not an option{_near(key, known)}; see rxlanggraph "
                f"{name.replace('.', ' ')} --help"
            )
        found[option.name] = _value(f"{file}: {name}.{key}", value, option)
    return found


def _value(place: str, value: Any, option: click.Option) -> Any:
    multiple = option.multiple
    if multiple and isinstance(value, dict):
        return [f"{key}={json.dumps(each, default=str)}" for key, each in value.items()]
    if multiple and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    if option.is_flag:
        kind, known = "true or false", isinstance(value, bool)
    elif multiple:
        kind, known = "a table or a list of strings", False
    else:
        kind = "a string or a number"
        known = isinstance(value, str | int | float) and not isinstance(value, bool)
    if not known:
        raise SettingsError(f"{place} is {value!r}; write {kind}")
    return value


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
