"""Fields that a class for any thread changes, and does not say who guards them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

__all__ = ["shared_fields"]

_ANY_CASE = re.IGNORECASE
_FOR_ANY_THREAD = re.compile(r"\b(any|all|other|several|number of) (of the )?threads?\b", _ANY_CASE)
_SAYS_IT_OF_ALL = re.compile(r"\b(guarded|confined|immutable)\b", _ANY_CASE)
_BEFORE_IT_IS_SHARED = {"__init__", "_after_fork", "after_fork"}


def shared_fields(code: str) -> Iterator[tuple[str, bool]]:
    """Yield each field that methods of a class for any thread replace, and whether it is explained.

    It is by a comment on the line in ``__init__`` where it is made, or on one before it there:
    comments say "guards everything below".
    """
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.ClassDef):
            continue
        text, methods = ast.get_docstring(node) or "", _methods_of(node)
        init = methods.get("__init__")
        if init is None or not _FOR_ANY_THREAD.search(text):
            continue
        made = dict(reversed(_written(init)))
        changed = {
            name
            for method in methods.values()
            if method.name not in _BEFORE_IT_IS_SHARED
            for name, _ in _written(method)
        }
        for name in sorted(changed & made.keys()):
            above = code.splitlines()[init.lineno - 1 : made[name]]
            explained = any("#" in line for line in above) or _SAYS_IT_OF_ALL.search(text)
            yield f"{node.name}.{name}", bool(explained)


def _methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        each.name: each
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _written(method: ast.AST) -> list[tuple[str, int]]:
    """The fields of ``self`` that are assigned to, or deleted, each with its line."""
    return [
        (each.attr, each.lineno)
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store | ast.Del)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    ]
