"""A factory as bytes: by its name if its module can be imported, otherwise with all it refers to.

What breaks without the check: a nested function, or one of ``__main__``, takes the graphs that it
refers to along; these do not survive that, and answer with errors of LangGraph's that mean nothing.
"""

from __future__ import annotations

import io
from typing import Any

from rxlanggraph.errors import InvalidTypeError

__all__ = ["dump_target"]


def dump_target(ray: Any, target: Any) -> bytes:
    """Pickle ``target``, and what it refers to. Any thread; never blocks.

    Args:
        ray: The module.
        target: The name of a graph, or a factory.

    Raises:
        InvalidTypeError: It cannot be pickled, or would take a graph along.
    """

    class Pickler(ray.cloudpickle.CloudPickler):  # type: ignore[misc]  # no types are installed
        def reducer_override(self, value: Any) -> Any:
            if not isinstance(value, type) and _is_graph(value):
                raise InvalidTypeError(
                    f"{target!r} would take the {type(value).__name__} along that it refers to, "
                    "which does not survive pickling; make that within the factory, or let the "
                    "factory be a function of a module, not of another function or of __main__"
                )
            return super().reducer_override(value)

    written = io.BytesIO()
    try:
        Pickler(written).dump(target)
    except InvalidTypeError:
        raise
    except Exception as error:
        raise InvalidTypeError(f"{target!r} cannot be pickled: {error}") from error
    return written.getvalue()


def _is_graph(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "aget_state") or (hasattr(kind, "compile") and hasattr(kind, "add_node"))
