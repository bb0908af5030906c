"""Finds the graph that the command is to run: by its name in a project, or by its place.

Whatever is wrong with it is found here, before the first message: one error that names the place in
the user's files, instead of one for every line.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rxlanggraph.bridge.draining import can_drain
from rxlanggraph.bridge.graphs.adapters import adapt_graph
from rxlanggraph.bridge.graphs.configs import one_thread, threads_of
from rxlanggraph.cli.errors import CommandError, TargetError
from rxlanggraph.cli.factories import (
    MadeGraph,
    factory_arguments,
    is_factory,
    made_graph,
    make_on,
)
from rxlanggraph.cli.project import (
    PROJECT_FILE,
    Project,
    is_javascript,
    read_environment,
    read_project,
)
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, error_text

__all__ = [
    "Target",
    "bound_thread",
    "can_continue",
    "find_target",
    "graph_of_worker",
    "has_checkpointer",
    "keeps_in_memory",
    "opened_graph",
]

_EXAMPLE = "such as my_graphs.py:graph or my_package.graphs:graph"
# Where there is code that is not the user's: the command and the standard library.
_CODE = Path(__file__).parent
_LIBRARY = Path(os.__file__).parent
# The file of os.environ in a traceback, from its source and as part of the interpreter.
_OS_FILES = ("<frozen os>", os.__file__)
_UNNAMED = "LangGraph"  # what LangGraph calls a graph that was compiled without a name


@dataclass(frozen=True, slots=True)
class Target:
    """The graph that the command is to run.

    Attributes:
        place: ``MODULE_OR_FILE:GRAPH``.
        project: The project that it belongs to; None if it was named by its place.
        origin: The place as the user has written it, for messages.
        name: Its name in the project, if it has one.
    """

    place: str
    project: Project | None
    origin: str
    name: str | None = None


def find_target(text: str, *, project: str = PROJECT_FILE, env_file: str | None = None) -> Target:
    """Find the graph that ``text`` names, and set its environment variables; import nothing.

    The main thread: it changes `os.environ`. A variable that is set already keeps its value.

    Args:
        text: ``MODULE_OR_FILE:GRAPH``, or a name in langgraph.json.
        project: The path of langgraph.json.
        env_file: A file of environment variables, which has precedence over the project's.

    Raises:
        ProjectError: langgraph.json, or a file of variables, cannot be used.
        TargetError: ``text`` is neither a place nor the name of a graph.
    """
    variables = {} if env_file is None else read_environment(env_file)
    target = Target(text, None, repr(text)) if ":" in text else _in_project(text, project)
    if target.project is not None:
        variables = {**target.project.environment, **variables}
        target.project.enter()
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    return target


def _in_project(name: str, file: str) -> Target:
    if (file == PROJECT_FILE and not os.path.isfile(file)) or name.endswith(".py"):
        raise TargetError(
            f"{name!r} does not name a graph: write MODULE_OR_FILE:GRAPH, {_EXAMPLE}; or the name "
            f"of a graph in the {PROJECT_FILE} of the current directory, or in that of --project"
        )
    project = read_project(file)
    graph = project.graph(name)
    origin = f"{file}, graphs.{name}"
    if is_javascript(graph.place):
        raise TargetError(
            f"{origin} is JavaScript: {graph.place}; name one of the graphs in Python, or run it "
            "with LangGraph's server"
        )
    return Target(graph.place, project, origin, name)


@contextlib.contextmanager
def opened_graph(target: Target, config: Mapping[str, Any] | None) -> Iterator[MadeGraph]:
    """Import the graph of ``target``, make it if need be, and keep it for the length of a block.

    The main thread, before anything runs. Blocks as importing does, and as `made_graph` does.

    Args:
        target: From `find_target`.
        config: The config of the runs, for a factory.

    Raises:
        TargetError: It cannot be imported or made, there is no such name, or it is not a graph.
    """
    found = _imported(target)
    if not _makes_graph(found, target):
        found = _compiled(found) if target.project is not None else found
        _check_graph(found, target)
        yield MadeGraph(_named(found, target), None)
        return
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(made_graph(found, config, target.origin))
        except CommandError:
            raise
        except (Exception, SystemExit) as error:
            raise TargetError(
                f"{target.origin}: making the graph failed: "
                f"{_failure(error, target, _making_remedy(target))}"
            ) from error
        graph = _compiled(made.graph)
        if not hasattr(graph, "ainvoke"):
            raise TargetError(
                f"{target.origin} returned {graph!r}, which is not a graph; return a compiled "
                "graph (to run a function of the content, give it as MODULE_OR_FILE:NAME, and a "
                "parameter for the content)"
            )
        yield MadeGraph(_named(graph, target), made.loop)


@contextlib.asynccontextmanager
async def graph_of_worker(
    target: Target, config: Mapping[str, Any] | None, folder: str
) -> AsyncIterator[Any]:
    """Import the graph of ``target`` in a worker process, and make it if need be. On its loop.

    Args:
        target: That of the driver.
        config: The config of the runs, for a factory.
        folder: The driver's current directory, to which paths of the user are relative.

    Raises:
        TargetError: It cannot be imported.
        Exception: What the factory raises.
    """
    with contextlib.suppress(OSError):  # on another machine, where it need not be
        os.chdir(folder)
    if target.project is not None:
        target.project.enter()
        for name, value in target.project.environment.items():
            os.environ.setdefault(name, value)
    found = _imported(target)
    async with contextlib.AsyncExitStack() as stack:
        if _makes_graph(found, target):
            arguments = factory_arguments(found, config, target.origin)
            found = await make_on(stack, found, arguments)
        yield _compiled(found)


def _making_remedy(target: Target) -> str:
    if target.project is None:
        return "check that it returns a graph"
    return (
        "check that it returns a graph; a function of the content is not named in "
        f"{PROJECT_FILE}, but run by its place, {target.place}"
    )


def _makes_graph(found: Any, target: Target) -> bool:
    if target.project is None:
        return is_factory(found)
    # To LangGraph's server every function is a factory; none is one of the content.
    return callable(found) and not isinstance(found, type) and not hasattr(found, "ainvoke")


def _compiled(graph: Any) -> Any:
    """Compile a graph that is not compiled yet, as LangGraph's server does."""
    is_builder = hasattr(graph, "compile") and hasattr(graph, "add_node")
    return graph.compile() if is_builder and not isinstance(graph, type) else graph


def _named(graph: Any, target: Target) -> Any:
    """Give a graph that was compiled without a name that of the project, for metrics and traces."""
    if target.name is not None and getattr(graph, "name", None) == _UNNAMED:
        graph.name = target.name
    return graph


def has_checkpointer(graph: Any) -> bool:
    """Whether ``graph`` saves the state of each run, under a thread that the run must have."""
    return bool(getattr(graph, "checkpointer", None))


def bound_thread(graph: Any, config: Mapping[str, Any] | None, target: Target) -> str | None:
    """The one thread that the graph is bound to by ``with_config``, or by ``config``, if any.

    Raises:
        TargetError: The thread is not a string, or there are two.
    """
    try:
        named = one_thread(threads_of(graph, config))
    except (InvalidArgumentError, InvalidTypeError) as error:
        raise TargetError(f"{target.origin} cannot run: {error}") from error
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


def _imported(target: Target) -> Any:
    source, colon, name = target.place.rpartition(":")
    if not colon or not source or not name:
        raise TargetError(
            f"{target.place!r} does not name a graph: write MODULE_OR_FILE:GRAPH, {_EXAMPLE}"
        )
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    module = (_import_file if is_file else _import_module)(source, target)
    return _attribute(module, name, source, target)


def _import_file(source: str, target: Target) -> ModuleType:
    if not os.path.isfile(source):
        raise TargetError(
            f"{_by(target)}no file {source!r}: give the path of a Python file, {_EXAMPLE}"
        )
    path = Path(os.path.realpath(source))
    _make_importable(path.parent)
    name = path.stem if path.stem not in sys.modules else f"_rxlanggraph_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{_by(target)}{source!r} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # LangGraph reads the annotations of a state class through its module's entry here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_error(source, error, target) from error
    return module


def _import_module(source: str, target: Target) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if source == missing or source.startswith(f"{missing}."):
            hint = f"; did you mean {source}.py?" if os.path.isfile(f"{source}.py") else ""
            raise TargetError(
                f"{_by(target)}no module {missing!r}, neither in {Path.cwd()} nor installed"
                f"{hint or '; check its name'}"
            ) from error
        raise _import_error(source, error, target) from error
    except (Exception, SystemExit) as error:
        raise _import_error(source, error, target) from error


def _make_importable(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _by(target: Target) -> str:
    """Return the beginning of a message: the place in the project's file, if there is one."""
    return "" if target.project is None else f"{target.origin}: "


def _import_error(source: str, error: BaseException, target: Target) -> TargetError:
    failure = _failure(error, target, "check that python alone can import it")
    return TargetError(f"{_by(target)}importing {source!r} failed: {failure}")


def _failure(error: BaseException, target: Target, remedy: str) -> str:
    """Return a text for an exception of the user's code, with its place and the remedy."""
    text = f"{type(error).__name__}: {' '.join(error_text(error).split())}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    else:
        own = [frame for frame in frames if _is_users(frame.filename)]
        where = f"{own[-1].filename}, line {own[-1].lineno}" if own else target.origin
    if isinstance(error, ModuleNotFoundError):
        remedy = _installing(error.name or "", target.project) or remedy
    elif isinstance(error, KeyError) and frames and frames[-1].filename in _OS_FILES:
        text = f"the environment variable {error.args[0]} is not set"
        remedy = "set it, or add it to the project's .env, or to a file that --env-file names"
    return f"{text} ({where}); {remedy}"


def _is_users(filename: str) -> bool:
    path = Path(filename)
    return not (
        filename.startswith("<frozen")
        or "site-packages" in path.parts
        or _CODE in path.parents
        or _LIBRARY in path.parents
    )


def _installing(module: str, project: Project | None) -> str | None:
    """Return how to install ``module``, if it is, or may be, a dependency of the project."""
    packages = () if project is None else project.packages
    top = module.partition(".")[0]
    names = {each: re.split(r"[^\w.-]", each)[0].replace("-", "_").lower() for each in packages}
    chosen = [each for each, name in names.items() if name == top.lower()] or list(packages)
    if not chosen:
        return None
    return f"install what {project and project.file} depends on: pip install {' '.join(chosen)}"


def _attribute(module: ModuleType, name: str, source: str, target: Target) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise TargetError(
                f"{_by(target)}{source!r} has no {name!r}{_near(found, part)}"
            ) from None
    return found


def _near(owner: Any, missing: str) -> str:
    """Return a hint: names similar to ``missing``, or else graphs, or functions, of ``owner``."""
    public = [name for name in dir(owner) if not name.startswith("_")]
    near = difflib.get_close_matches(missing, public, cutoff=0.6)
    things = {name: getattr(owner, name, None) for name in public}
    near = near or [name for name, thing in things.items() if hasattr(thing, "ainvoke")]
    near = near or [name for name, thing in things.items() if _is_function_of(owner, thing)]
    return f"; did you mean {' or '.join(near[:3])}?" if near else "; check the name"


def _is_function_of(module: Any, thing: Any) -> bool:
    """Whether it is a function that the module itself defines, not one that it imports."""
    return inspect.isfunction(thing) and thing.__module__ == getattr(module, "__name__", None)


def _check_graph(graph: Any, target: Target) -> None:
    if isinstance(graph, type):
        raise TargetError(f"{target.origin} is a class: name a graph, or a function of the content")
    try:
        adapt_graph(graph)
    except InvalidTypeError as error:
        raise TargetError(f"{target.origin} is not a graph: {error}") from error
    except InvalidArgumentError as error:
        raise TargetError(f"{target.origin} cannot run: {error}") from error
