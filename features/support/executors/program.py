"""What no other process can import, as it is defined in ``__main__``; and what pickles it."""

from __future__ import annotations

import io
import pickle
from typing import Any

__all__ = ["ProgramError", "dumps"]


class ProgramError(Exception):
    """Pickle does not find it by its name."""

    __qualname__ = "elsewhere.ProgramError"


def _made(args: tuple[Any, ...]) -> ProgramError:
    return ProgramError(*args)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return (_made, (value.args,)) if isinstance(value, ProgramError) else NotImplemented


def dumps(value: Any) -> bytes:
    """Pickle ``value``, as cloudpickle would."""
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()
