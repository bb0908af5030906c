"""Base classes of context managers that only close themselves at the end of their block.

Unlike `contextlib.closing` and `aclosing`, they do not wrap the object. A class whose exit depends
on how the block ended writes its own.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

__all__ = ["AsyncClosingContext", "ClosingContext"]


class _Closable(Protocol):
    def close(self) -> object: ...


class _AsyncClosable(Protocol):
    async def aclose(self) -> object: ...


class ClosingContext:
    """``with`` closes the object by its ``close()``, however the block ends."""

    __slots__ = ()

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(
        self: _Closable,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Call ``close``."""
        self.close()


class AsyncClosingContext:
    """``async with`` closes the object by its ``aclose()``, however the block ends."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        """Return the object itself."""
        return self

    async def __aexit__(
        self: _AsyncClosable,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Call ``aclose``."""
        await self.aclose()
