"""Which module of the package imports which, and whether that agrees with the map."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import rxlanggraph

__all__ = ["SOURCE", "imported_names", "layers", "modules", "offences", "package_imports"]

SOURCE = Path(rxlanggraph.__file__).parent
Imports = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    """Every module by its dotted name below the package; the package itself is ``""``."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imported_names(path: Path) -> Iterator[str]:
    """Every absolute module name that the file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def package_imports() -> dict[str, set[str]]:
    """What each module imports of the package, as dotted names below it."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        targets = {
            target.removeprefix("rxlanggraph").removeprefix(".")
            for target in imported_names(path)
            if target.split(".")[0] == "rxlanggraph"
        }
        graph[name] = {target for target in targets if target in known} - {name}
    return graph


def layers(package: ModuleType = rxlanggraph) -> dict[str, int]:
    """The names on the map in a package's docstring, with their line."""
    assert package.__doc__ is not None
    _, _, drawn = package.__doc__.partition("from those above it.\n")
    lines = [line.strip().split("  ")[0] for line in drawn.splitlines() if line.strip()]
    found: dict[str, int] = {}
    for number, line in enumerate(lines):
        # A line that ends with a comma goes on in the next one: they are one layer.
        level = number - 1 if number and lines[number - 1].endswith(",") else number
        for name in line.split(","):
            if name.strip():
                found[name.strip()] = level
    return found


def layer_of(module: str, known: Mapping[str, int]) -> int | None:
    return known.get(module.split(".", maxsplit=1)[0])


def offences(imports: Imports, known: Mapping[str, int]) -> list[str]:
    """Ways from a module down to one below it on the map, and circles."""
    try:
        tuple(graphlib.TopologicalSorter(imports).static_order())
    except graphlib.CycleError as error:
        return [f"a circle: {error.args[1]}"]
    found = []
    for module in imports:
        layer = layer_of(module, known)
        if layer is None:
            continue
        for target in _reached(module, imports):
            below = layer_of(target, known)
            if below is not None and below > layer:
                found.append(f"{module} reaches {target}")
    return found


def _reached(module: str, imports: Imports) -> set[str]:
    seen: set[str] = set()
    todo = [module]
    while todo:
        for target in imports.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen
