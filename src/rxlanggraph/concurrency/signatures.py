"""The signatures of user code, whatever its annotations are."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format

__all__ = ["signature_of"]


def signature_of(function: Callable[..., Any], *, follow_wrapped: bool = True) -> inspect.Signature:
    """Return the signature of ``function``, whatever its annotations are. Any thread.

    What breaks without it: Python 3.14 evaluates annotations when they are asked for, and a name
    that is imported for type checkers alone is not defined then.

    Raises:
        TypeError: It cannot be called.
        ValueError: It has no signature, as some functions in C.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(
            function, follow_wrapped=follow_wrapped, annotation_format=Format.FORWARDREF
        )
    return inspect.signature(function, follow_wrapped=follow_wrapped)
