"""The example programs, as modules."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from support.cli import command

__all__ = ["example_of"]


@contextlib.contextmanager
def example_of(name: str) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location(
        f"{name}_example", command.ROOT / "examples" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    with command.imported(f"{name}_example", example):
        spec.loader.exec_module(example)
        yield example
