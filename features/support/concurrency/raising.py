"""What a call raises, as a value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

__all__ = ["check_error", "error_of", "errors_of", "raised"]


def error_of(fn: Callable[[], object]) -> BaseException | None:
    try:
        fn()
    except BaseException as error:
        return error
    return None


def errors_of(fn: Callable[[], object]) -> list[BaseException]:
    error = error_of(fn)
    return [] if error is None else [error]


async def raised(call: Awaitable[object]) -> Exception | None:
    """As ``error_of``, of what is awaited; a cancellation of the caller is not kept."""
    try:
        await call
    except Exception as error:
        return error
    return None


def check_error(error: object, name: str, words: str = "") -> None:
    """Its type, not a base of it, has this name, and it says these words."""
    assert type(error).__name__ == name, repr(error)
    assert words in str(error), error
