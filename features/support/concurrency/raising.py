"""What a call raises, as a value."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["error_of", "errors_of"]


def error_of(fn: Callable[[], object]) -> Exception | None:
    try:
        fn()
    except Exception as error:
        return error
    return None


def errors_of(fn: Callable[[], object]) -> list[Exception]:
    error = error_of(fn)
    return [] if error is None else [error]
