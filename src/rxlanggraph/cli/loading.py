"""Imports the graph that ``MODULE_OR_FILE:GRAPH`` names."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from rxlanggraph.bridge.draining import can_drain
from rxlanggraph.bridge.graphs.adapters import adapt_graph
from rxlanggraph.bridge.graphs.configs import one_thread, threads_of
from rxlanggraph.cli.errors import TargetError
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["bound_thread", "can_continue", "has_checkpointer", "keeps_in_memory", "load_graph"]

_EXAMPLE = "such as my_graphs.py:graph or my_package.graphs:graph"


def load_graph(target: str) -> Any:
    """Import the module or file of ``target`` and return the graph that it names.

    For the main thread, before anything runs: it changes `sys.path`, so that modules beside the
    file, or in the current directory, can be imported. Blocks while the module is imported.

    Args:
        target: ``package.module:name`` or ``path/to/file.py:name``; the name may have dots.

    Returns:
        A compiled LangGraph graph, another Runnable, or a function of the content.

    Raises:
        TargetError: It has no ``:``, cannot be imported, has no such name, or that is not a graph.
    """
    source, colon, name = target.rpartition(":")
    if not colon or not source or not name:
        raise TargetError(
            f"{target!r} does not name a graph: write MODULE_OR_FILE:GRAPH, {_EXAMPLE}"
        )
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    module = _import_file(source) if is_file else _import_module(source)
    graph = _attribute(module, name, source)
    _check_graph(graph, target)
    return graph


def has_checkpointer(graph: Any) -> bool:
    """Whether ``graph`` saves the state of each run, under a thread that the run must have."""
    return bool(getattr(graph, "checkpointer", None))


def bound_thread(graph: Any, target: str) -> str | None:
    """The one thread that ``with_config`` has bound the graph to, if any.

    Raises:
        TargetError: The thread is not a string, or there are two.
    """
    try:
        named = one_thread(threads_of(graph, None))
    except (InvalidArgumentError, InvalidTypeError) as error:
        raise TargetError(f"{target!r} cannot run: {error}") from error
    return None if named is None else named.thread_id


def keeps_in_memory(graph: Any) -> bool:
    """Whether the graph's checkpointer is LangGraph's in-memory one, which ends with the process.

    The class is recognized by the name of its module, because importing it is slow, and a graph
    that is a plain function does not need it.
    """
    return type(getattr(graph, "checkpointer", None)).__module__ == "langgraph.checkpoint.memory"


def can_continue(graph: Any) -> bool:
    """Whether a run of ``graph`` that is stopped between supersteps can go on in another process.

    Other graphs are not asked to stop when the command is: their work would be lost.
    """
    return can_drain(graph) and not keeps_in_memory(graph)


def _import_file(source: str) -> ModuleType:
    path = Path(os.path.realpath(source))
    if not os.path.isfile(path):
        raise TargetError(f"no file {source!r}: give the path of a Python file, {_EXAMPLE}")
    _make_importable(path.parent)
    name = path.stem if path.stem not in sys.modules else f"_rxlanggraph_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{source!r} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # LangGraph reads the annotations of a state class through its module's entry here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise TargetError(_import_failure(source, error)) from error
    return module


def _import_module(source: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if source == missing or source.startswith(f"{missing}."):
            hint = f"; did you mean {source}.py?" if os.path.isfile(f"{source}.py") else ""
            raise TargetError(
                f"no module {missing!r}, neither in {Path.cwd()} nor installed"
                f"{hint or '; check its name'}"
            ) from error
        raise TargetError(_import_failure(source, error)) from error
    except (Exception, SystemExit) as error:
        raise TargetError(_import_failure(source, error)) from error


def _make_importable(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _import_failure(source: str, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    else:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "importlib" not in frame.filename and frame.filename != __file__
        ]
        where = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else source
    return (
        f"importing {source!r} failed: {type(error).__name__}: {error} ({where}); "
        "check that python alone can import it"
    )


def _attribute(module: ModuleType, name: str, source: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise TargetError(f"{source!r} has no {name!r}{_near(found, part)}") from None
    return found


def _near(owner: Any, missing: str) -> str:
    """Return a hint: names similar to ``missing``, or else the graphs in ``owner``."""
    public = [name for name in dir(owner) if not name.startswith("_")]
    near = difflib.get_close_matches(missing, public, cutoff=0.6)
    near = near or [name for name in public if hasattr(getattr(owner, name, None), "ainvoke")]
    return f"; did you mean {' or '.join(near[:3])}?" if near else "; check the name"


def _check_graph(graph: Any, target: str) -> None:
    if isinstance(graph, type):
        raise TargetError(f"{target!r} is a class: name a graph, or a function of the content")
    try:
        adapt_graph(graph)
    except InvalidTypeError as error:
        raise TargetError(f"{target!r} is not a graph: {error}") from error
