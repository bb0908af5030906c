from __future__ import annotations

import ast
import asyncio
import builtins
import collections
import importlib
import inspect
import pickle
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from behave import given, then, when
from behave.runner import Context

import rxlanggraph
from rxlanggraph import RxLangGraphError, RxPyLangGraphBridge, TaskRegistry, errors, state
from rxlanggraph.agent import BaseAgent
from support.cli.command import ROOT, run_python
from support.cli.imports import SOURCE, imported_names, layers, modules, offences, package_imports
from support.concurrency.shared_fields import shared_fields

# -- imports ---------------------------------------------------------------------------------------


def imports_of(package: ModuleType) -> dict[str, set[str]]:
    """What its modules import of each other, but for the ``__init__``, which is above them all."""
    inside = f"{package.__name__}.".removeprefix("rxlanggraph.")
    return {
        name.removeprefix(inside): {
            target.removeprefix(inside)
            for target in targets
            if target.startswith(inside) and target
        }
        for name, targets in package_imports().items()
        if name.startswith(inside) and name
    }


def mapped() -> list[ModuleType]:
    """The packages whose docstring has a map."""
    return [module for _, module in loaded() if "from those above it.\n" in (module.__doc__ or "")]


@then("no module imports, directly or through others, one below it on the map")
@then("the modules can be put in an order in which each imports only earlier ones")
def step_no_module_imports_one_below_it(context: Context) -> None:
    for package in mapped():
        assert offences(imports_of(package), layers(package)) == [], package.__name__


INVENTED = {
    "errors imports registry": {"errors": {"registry"}, "registry": set()},
    "registry imports bridge through a helper": {
        "registry": {"helper"},
        "helper": {"bridge"},
        "bridge": set(),
    },
    "two helpers import each other": {"helper": {"other"}, "other": {"helper"}},
}


@given("an invented package where {what}")
def step_an_invented_package_where_what(context: Context, what: str) -> None:
    context.offences = offences(INVENTED[what], layers())


@then("the check of the map complains")
def step_the_check_of_the_map_complains(context: Context) -> None:
    assert len(context.offences) == 1, context.offences


@then("each name on the map is a module or a package, and no module is missing")
def step_each_name_on_the_map_is_a_module_and_no_module_is_missing(context: Context) -> None:
    assert len(layers()) >= 9 and len(mapped()) > 1
    there = {f"rxlanggraph.{name}" for name in modules() if name}
    for package in mapped():
        drawn = {f"{package.__name__}.{name}" for name in layers(package)}
        inside = {each for each in there if each.rpartition(".")[0] == package.__name__}
        inside.discard("rxlanggraph.__main__")
        assert drawn == inside, drawn ^ inside


@then("registry.py and the modules that it imports import nothing but these and each other")
def step_registry_py_and_the_modules_that_it_imports_import_nothing(context: Context) -> None:
    concurrency = ("clock", "forking", "threads", "user_code")
    parts = ("registry", "validation", *(f"concurrency.{name}" for name in concurrency))
    allowed = {*sys.stdlib_module_names, *(f"rxlanggraph.{name}" for name in (*parts, "errors"))}
    for part in parts:
        for name in imported_names(modules()[part]):
            # The module itself, a name in it, or a module inside one of the standard library.
            assert {name, name.rpartition(".")[0], name.split(".")[0]} & allowed, (part, name)


@then("every lock of any other module is made by fork_safe_rlock")
def step_every_lock_of_any_other_module_is_made_by_fork_safe_rlock(context: Context) -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in modules().values()
        if any(map(is_plain_lock, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == {row["module"] for row in context.table}, found


def is_plain_lock(node: ast.AST) -> bool:
    """Whether it makes a lock, or a name for a plain one."""
    if isinstance(node, ast.ImportFrom) and node.module == "threading":
        return any(each.name in PLAIN_LOCKS for each in node.names)
    # A condition that is given a lock makes none.
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) in {f"threading.{name}" for name in PLAIN_LOCKS}
        and not (node.args and node.func.attr == "Condition")
    )


PLAIN_LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}


@then(
    "the modules of agents and actors use no private names that they do not define, but internal.py"
)
def step_the_modules_of_agents_and_actors_use_no_private_names(context: Context) -> None:
    own = {
        name: path for name, path in modules().items() if name.split(".")[0] in {"agent", "actor"}
    }
    found = {name: used for name, path in own.items() if (used := foreign_names(path.read_text()))}
    assert list(found) == ["agent.internal"], found


@then('the private names that "{code}" does not define are "{names:Text}"')
def step_the_private_names_that_code_does_not_define_are_names(
    context: Context, code: str, names: str
) -> None:
    assert foreign_names(code) == set(names.split()), foreign_names(code)


def foreign_names(source: str) -> set[str]:
    """The private attributes that a module uses of something other than ``self``.

    Those that it defines itself are not among them, nor those of the standard library.
    """
    nodes = list(ast.walk(ast.parse(source)))
    used = [node for node in nodes if isinstance(node, ast.Attribute) and is_private(node.attr)]
    own = {node.attr for node in used if ast.unparse(node.value) in {"self", "cls"}}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {node.attr for node in used} - own - {"_get_running_loop", "_replace", "_make"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@when("a new interpreter imports rxlanggraph")
def step_a_new_interpreter_imports_rxlanggraph(context: Context) -> None:
    done = run_python("-c", "import rxlanggraph, sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    context.imported = set(done.stdout.split())


@then("none of langgraph, langchain_core, click, rich or rxlanggraph.cli is imported with it")
def step_none_of_langgraph_langchain_core_click_rich_or_rxlanggraph(context: Context) -> None:
    unwanted = {"langgraph", "langchain_core", "click", "rich", "rxlanggraph.cli"}
    assert not unwanted & context.imported, unwanted & context.imported
    assert "rxlanggraph.bridge.bridge" in context.imported


# -- public names ----------------------------------------------------------------------------------


def loaded() -> Iterator[tuple[str, Any]]:
    for name in modules():
        yield name, importlib.import_module(f"rxlanggraph.{name}" if name else "rxlanggraph")


def public_objects() -> Iterator[tuple[str, Any]]:
    """Everything public: what modules export of their own, and the members of those classes."""
    for module_name, module in loaded():
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if getattr(thing, "__module__", None) != module.__name__:
                continue
            yield f"{module_name}.{name}", thing
            if inspect.isclass(thing):
                yield from members(f"{module_name}.{name}", thing)


def members(owner: str, cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(cls).items():
        kind = isinstance(member, property | classmethod | staticmethod)
        if not name.startswith("_") and (kind or inspect.isfunction(member)):
            yield f"{owner}.{name}", member


@then("the package's __all__ is exactly these names, and the errors")
def step_the_packages_all_is_exactly_these_names_and_the_errors(context: Context) -> None:
    assert rxlanggraph.__all__ == [*context.text.split(), *errors.__all__], rxlanggraph.__all__


PUBLIC = {
    "BaseAgent": BaseAgent,
    "RxPyLangGraphBridge": RxPyLangGraphBridge,
    "TaskRegistry": TaskRegistry(),
}


def public_names(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@then("the public names of {cls:w} are")
def step_the_public_names_of_cls_are(context: Context, cls: str) -> None:
    context.names = set(context.text.split())
    found = public_names(PUBLIC[cls])
    assert found == context.names, found


@then("those of an agent are these, its output_queue, and what it was made with: {names}")
def step_those_of_an_agent_are_these(context: Context, names: str) -> None:
    known = context.names | {"output_queue", *names.split()}
    assert public_names(BaseAgent("agent")) == known, public_names(BaseAgent("agent"))


@then("those of an open bridge are these, and what it was made with: {names}")
def step_those_of_an_open_bridge_are_these(context: Context, names: str) -> None:
    with RxPyLangGraphBridge() as made:
        assert public_names(made) == context.names | set(names.split()), public_names(made)


@then("the public names of these classes of rxlanggraph.state are")
def step_the_public_names_of_these_classes_of_state_are(context: Context) -> None:
    described = re.findall(r"^(\w+): ((?:.|\n(?= ))*)", context.text, re.MULTILINE)
    assert len(described) == 5, described
    for name, names in described:
        assert public_names(getattr(state, name)) == set(names.split()), name


@then("those of an open state are these, and no others")
def step_those_of_an_open_state_are_these(context: Context) -> None:
    async def names_of_an_open_state() -> set[str]:
        async with state.open_state("memory:") as opened:
            return public_names(opened)

    assert asyncio.run(names_of_an_open_state()) == public_names(state.State)


@then("every path on its page of changes is a file or folder, {count:d} or more of them")
def step_every_path_on_its_page_of_changes_is_a_file_or_folder(
    context: Context, count: int
) -> None:
    page = Path(ROOT, "docs/design.md").read_text().partition("## Where do I change ...?")[2]
    paths = re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9.]+)+|[a-z_]+\.py)`", page)
    assert len(paths) >= count, paths
    missing = [path for path in paths if not any((top / path).exists() for top in (ROOT, SOURCE))]
    assert not missing, missing


def names_in_code() -> set[str]:
    """The identifiers in the package's code: none that only a comment or a text has."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        with tokenize.open(path) as file:
            tokens = tokenize.generate_tokens(file.readline)
            found.update(token.string for token in tokens if token.type == tokenize.NAME)
    return found


def unknown_names(text: str, known: set[str]) -> tuple[set[str], set[str]]:
    """The identifiers that ``text`` has in backticks, and those that are not ``known``."""
    spans = re.findall(r"`([A-Za-z_][\w.]*)(?:\(\))?`", text)
    names = {name for span in spans for name in span.split(".")}
    return names, names - known


@then("every name on the page of threads is one in the code, {count:d} or more of them")
def step_every_name_on_the_page_of_threads_is_one_in_the_code(context: Context, count: int) -> None:
    page = Path(ROOT, "docs/threads.md").read_text()
    names, unknown = unknown_names(page, names_in_code())
    assert len(names) >= count, len(names)
    assert not unknown, sorted(unknown)


@then('"{name}" would be missed there')
def step_name_would_be_missed_there(context: Context, name: str) -> None:
    _, unknown = unknown_names(f"| `{name}` | locked |", names_in_code())
    assert unknown == {name.rpartition(".")[2]}, unknown


@then(
    "every field that a class for any thread replaces is explained where it is made, "
    "{count:d} or more"
)
def step_every_field_that_a_class_for_any_thread_replaces_is_explained(
    context: Context, count: int
) -> None:
    found = [field for path in SOURCE.rglob("*.py") for field in shared_fields(path.read_text())]
    assert len(found) >= count, len(found)
    unexplained = [name for name, explained in found if not explained]
    assert not unexplained, unexplained


_MADE = {
    "it has no comment": "self._count = 0",
    "only what is made after it has one": "self._count = 0; self._other = 0  # guarded",
}


@then("of a class for any thread, the field is missed where {what}")
def step_of_a_class_for_any_thread_the_field_is_missed_where(context: Context, what: str) -> None:
    made = _MADE[what].replace("; ", "\n        ")
    code = f'''class Counter:
    """Counts. Any thread."""

    def __init__(self) -> None:
        {made}

    def count(self) -> None:
        self._count += 1
'''
    assert list(shared_fields(code)) == [("Counter._count", False)]
    commented = code.replace("self._count = 0", "self._count = 0  # guarded by the lock")
    assert list(shared_fields(commented)) == [("Counter._count", True)]


@then("every module has a docstring, and an __all__ of names that exist")
def step_every_module_has_a_docstring_and_an_all_of_names_that(context: Context) -> None:
    for name, module in loaded():
        assert module.__doc__, f"{name} says nothing of itself"
        is_package = hasattr(module, "__path__")
        if not is_package or hasattr(module, "__all__"):
            assert all(hasattr(module, exported) for exported in module.__all__), name


@then("every public class, function, method and property has a docstring")
def step_every_public_class_function_method_and_property_has_a(context: Context) -> None:
    documented = [(name, inspect.getdoc(thing)) for name, thing in public_objects()]
    assert len(documented) > 100, len(documented)
    assert [name for name, text in documented if not text] == []


def words_of(sentence: str) -> list[str]:
    """The words that a name can have, with the names of the parameters."""
    named = re.sub(r"\{(\w+)[^}]*\}", r" \1 ", sentence).lower().replace("'", "")
    return re.findall("[a-z0-9]+", named)


@then("every step function is named with words of its sentence, in their order")
def step_every_step_function_is_named_with_words_of_its_sentence(context: Context) -> None:
    sentences = collections.defaultdict(list)
    for matchers in context._runner.step_registry.steps.values():
        for matcher in matchers:
            sentences[matcher.func].append(matcher.pattern)
    assert len(sentences) > 1000, len(sentences)
    misnamed = []
    for function, its in sentences.items():
        name = function.__name__.removeprefix("step_").split("_")
        following = (iter(words_of(sentence)) for sentence in its)
        if not any(all(word in rest for word in name) for rest in following):
            misnamed.append((function.__name__, its))
    assert not misnamed, misnamed


@then('every name under "Raises:" is a built-in error or one of this package')
def step_every_name_under_raises_is_a_built_in_error_or_one_of_this(context: Context) -> None:
    known = set(vars(builtins)) | set(errors.__all__)
    for _, module in loaded():
        known |= {name for name, thing in vars(module).items() if inspect.isclass(thing)}
    named = [(str(path), name) for path in modules().values() for name in raised_names(path)]
    assert len(named) > 40, len(named)
    assert [entry for entry in named if entry[1] not in known] == []


def raised_names(path: Any) -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        _, found, section = (text or "").partition("\nRaises:\n")
        if not found:
            continue
        for line in section.split("\n\n")[0].splitlines():
            entry = re.match(r" {4}(\w[\w, ]*):", line)
            if entry:
                yield from entry[1].split(", ")


@then("the signatures of the bridge are")
def step_the_signatures_of_the_bridge_are(context: Context) -> None:
    for line in context.text.splitlines():
        method, expected = line.split(": ", 1)
        names: list[str] = []
        for name, parameter in inspect.signature(
            getattr(RxPyLangGraphBridge, method)
        ).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in names:
                names.append("*")
            names.append(name)
        assert ", ".join(names[1:]) == expected, f"{method}: {', '.join(names[1:])}"


# -- errors ----------------------------------------------------------------------------------------


def error_classes() -> dict[str, type[BaseException]]:
    return {
        name: thing
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, BaseException)
    }


@then("the classes drawn in errors.py, their bases and their built-in bases are those of the code")
def step_the_classes_drawn_in_errors_py_their_bases_and_their_built(context: Context) -> None:
    assert errors.__doc__ is not None
    parents: list[str] = []
    drawn = {}
    for line in errors.__doc__.splitlines():
        entry = re.match(r"( {4}[ │├└─]*)(\w+Error)(?: +\((\w+)\))?", line)
        if not entry:
            continue
        depth = (len(entry[1]) - 4) // 4
        parents[depth:] = [entry[2]]
        inherited = entry[3] or (drawn[parents[depth - 1]][1] if depth else None)
        drawn[entry[2]] = (parents[depth - 1] if depth else "Exception", inherited)
    assert set(drawn) == set(error_classes())
    for name, (parent, builtin) in drawn.items():
        cls = error_classes()[name]
        assert cls.__bases__[0].__name__ == parent, (name, parent)
        assert builtin is None or issubclass(cls, getattr(builtins, builtin)), (name, builtin)


@then("every class in errors.py is in its __all__, has a docstring, and derives from the root")
def step_every_class_in_errors_py_is_in_its_all_has_a_docstring_and(context: Context) -> None:
    assert sorted(error_classes()) == sorted(errors.__all__)
    for cls in error_classes().values():
        assert issubclass(cls, RxLangGraphError) and cls.__doc__, cls


@then("the class {error} is a {builtin}")
def step_the_class_error_is_a_builtin(context: Context, error: str, builtin: str) -> None:
    assert issubclass(error_classes()[error], getattr(builtins, builtin))


@then("no error is two of UsageError, ClosedError, LoopUnavailableError and RunError")
def step_no_error_is_two_of_usageerror_closederror(context: Context) -> None:
    kinds = (
        errors.UsageError,
        errors.ClosedError,
        errors.LoopUnavailableError,
        errors.RunError,
    )
    for cls in error_classes().values():
        assert sum(issubclass(cls, kind) for kind in kinds) <= 1, cls


@then("every error survives pickle with its message")
def step_every_error_survives_pickle_with_its_message(context: Context) -> None:
    for cls in error_classes().values():
        error = pickle.loads(pickle.dumps(cls("a message")))
        assert type(error) is cls and str(error) == "a message", error
