"""A LangGraph project: its langgraph.json, its environment variables, its folders.

The file is that of LangGraph's own server and command. Of its keys, ``graphs``, ``dependencies``
and ``env`` have an effect here; what is for the server alone is accepted and ignored.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rxlanggraph.cli.errors import ProjectError
from rxlanggraph.cli.object_files import read_json

__all__ = [
    "PROJECT_FILE",
    "Project",
    "ProjectGraph",
    "is_javascript",
    "read_environment",
    "read_project",
]

PROJECT_FILE = "langgraph.json"

_EXAMPLE = '{"graphs": {"agent": "./path/to/file.py:graph"}}'
_PLACE = "write path/to/file.py:graph or package.module:graph"
_JAVASCRIPT = (".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".tsx", ".jsx")


@dataclass(frozen=True, slots=True)
class ProjectGraph:
    """A graph of a project.

    Attributes:
        name: Its name in langgraph.json.
        place: ``MODULE_OR_FILE:GRAPH``; a file's path is relative to the current directory.
        description: What langgraph.json says about it.
    """

    name: str
    place: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """A project, as its langgraph.json describes it.

    Attributes:
        file: The path of langgraph.json, as it was given.
        graphs: The graphs by name, in the order of the file.
        folders: The local dependencies: modules are imported from there.
        packages: The other dependencies, as requirements of pip.
        environment: Environment variables for the graphs.
    """

    file: str
    graphs: Mapping[str, ProjectGraph]
    folders: tuple[Path, ...]
    packages: tuple[str, ...]
    environment: Mapping[str, str]

    def graph(self, name: str) -> ProjectGraph:
        """Return the graph of that name. Any thread; never blocks.

        Raises:
            ProjectError: There is none.
        """
        found = self.graphs.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.graphs, n=1)
            known = f"it has {', '.join(self.graphs)}" if self.graphs else "it has none"
            hint = f"did you mean {near[0]}?" if near else f"{known}; add it to the graphs"
            raise ProjectError(f"{self.file} has no graph {name!r}; {hint}")
        return found

    def enter(self) -> None:
        """Make the project's modules importable. The main thread, before anything is imported."""
        for folder in reversed(self.folders):
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))


def read_project(file: str) -> Project:
    """Read a langgraph.json, and the file of variables that it names. Blocks as reading does.

    Args:
        file: The path of langgraph.json.

    Raises:
        ProjectError: It cannot be read, or is wrong; the message names the place in it.
    """
    contents = read_json(
        file,
        ProjectError,
        f"write one such as {_EXAMPLE}, or pass its path with --project",
    )
    folder = Path(file).parent
    if "graphs" not in contents:
        raise ProjectError(f"{file} has no graphs; add them, such as {_EXAMPLE}")
    graphs = dict(_graphs(file, folder, _object(file, "graphs", contents["graphs"])))
    folders, packages = [], []
    for place, dependency in _dependencies(file, contents.get("dependencies", [])):
        if not dependency.startswith("."):
            packages.append(dependency)
            continue
        if not (folder / dependency).is_dir():
            raise ProjectError(
                f"{file}, {place}: there is no folder {dependency!r} beside it; create it, or name "
                "a package"
            )
        folders.append((folder / dependency).resolve())
    environment = _environment(file, folder, contents.get("env"))
    return Project(file, graphs, tuple(folders), tuple(packages), environment)


def read_environment(file: str) -> dict[str, str]:
    """Read a file of environment variables, such as ``.env``. Blocks as reading does.

    Raises:
        ProjectError: It cannot be read, has a line that is wrong, or python-dotenv is missing.
    """
    dotenv = _dotenv(file)
    try:
        with Path(file).open(encoding="utf-8") as stream:
            bindings = list(import_module("dotenv.parser").parse_stream(stream))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ProjectError(f"cannot read {file}: {reason}; give a readable file") from error
    for binding in bindings:
        if binding.error:
            text = binding.original.string.strip()
            raise ProjectError(
                f"{file}, line {binding.original.line}: {text!r} is not a variable; write "
                "NAME=value"
            )
    values = dotenv.dotenv_values(file, encoding="utf-8")
    found = {name: value for name, value in values.items() if value is not None}
    for name, value in found.items():
        _check_variable(file, name, value)
    return found


def _dotenv(file: str) -> Any:
    try:
        return import_module("dotenv")
    except ImportError as error:
        raise ProjectError(
            f"{file}: a file of environment variables needs the package python-dotenv, which is "
            "not installed; install the extra 'dotenv': pip install 'rxlanggraph[dotenv]'"
        ) from error


def _object(file: str, place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProjectError(
            f"{file}, {place}: {value!r} is not an object; write it such as {_EXAMPLE}"
        )
    return value


def _graphs(file: str, folder: Path, graphs: dict[str, Any]) -> Iterator[tuple[str, ProjectGraph]]:
    for name, entry in graphs.items():
        place = f"graphs.{name}"
        description = None
        if isinstance(entry, dict):
            description = entry.get("description")
            place, entry = f"{place}.path", entry.get("path")  # noqa: PLW2901
        if not isinstance(entry, str):
            raise ProjectError(f"{file}, {place}: {entry!r} is not a place; {_PLACE}")
        source, colon, variable = entry.rpartition(":")
        if not colon or not source or not variable:
            raise ProjectError(f"{file}, {place}: {entry!r} names no graph; {_PLACE}")
        if source.endswith((".py", *_JAVASCRIPT)) or "/" in source:
            source = os.path.relpath(folder / source)
        yield name, ProjectGraph(name, f"{source}:{variable}", description and str(description))


def _dependencies(file: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        raise ProjectError(
            f"{file}, dependencies: {value!r} is not a list; list folders and packages, such as "
            '["."]'
        )
    for number, dependency in enumerate(value):
        place = f"dependencies.{number}"
        if not isinstance(dependency, str) or not dependency:
            raise ProjectError(
                f"{file}, {place}: {dependency!r} is not a string; name a folder or a package"
            )
        yield place, dependency


def _environment(file: str, folder: Path, value: Any) -> dict[str, str]:
    """Return the variables of ``env``; if that is left out, those of a ``.env`` beside it."""
    if value is None:
        implied = folder / ".env"
        return read_environment(str(implied)) if implied.is_file() else {}
    if isinstance(value, str):
        path = folder / value
        if not path.is_file():
            raise ProjectError(
                f"{file}: env names {str(path)!r}, which is not a file; create it, or leave out env"
            )
        return read_environment(str(path))
    if not isinstance(value, dict):
        raise ProjectError(f"{file}, env: {value!r} must be the name of a file or an object")
    for name, text in value.items():
        if not isinstance(text, str):
            raise ProjectError(f"{file}, env.{name}: {text!r} is not a string; put it in quotes")
        _check_variable(f"{file}, env", name, text)
    return value


def _check_variable(place: str, name: str, value: str) -> None:
    try:
        text = os.fsencode(name + value)
    except UnicodeEncodeError:  # a lone surrogate
        text = b"\0"
    if not name or "=" in name or b"\0" in text:
        raise ProjectError(
            f"{place}: {name!r} cannot be an environment variable: a name is not "
            "empty and has no '=', and neither has NUL or a lone surrogate, nor has the value; "
            "correct it"
        )


def is_javascript(place: str) -> bool:
    """Whether a graph's place is a file that LangGraph's server gives to Node.js."""
    return place.rpartition(":")[0].endswith(_JAVASCRIPT)
