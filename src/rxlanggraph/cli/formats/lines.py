"""Lines of a binary stream, one at a time and numbered, whatever they hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["MAX_LINE_BYTES", "InputLine", "LineReader"]

MAX_LINE_BYTES = 64 * 1024 * 1024  # a guess: above any real message, far below any memory
_KEPT_OF_OVERLONG = 1000


@dataclass(frozen=True, slots=True)
class InputLine:
    """One line of the input, or one CSV record, which may span several.

    Args:
        number: Its first line in the input, counted from 1, blank lines and a CSV header too.
        raw: Its text without the newline; bytes that are not UTF-8 as surrogate escapes.
        end: Bytes of the input up to and including it.
        content: The message; None where ``problem`` says why there is none.
        problem: Why the line is invalid, or None.
        thread_id: The thread of the message, if it has one.
    """

    number: int
    raw: str
    end: int
    content: Any = None
    problem: str | None = None
    thread_id: str | None = None


class LineReader:
    """Lines of a binary stream as text, with number and offset; lines can be given back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._returned: deque[InputLine] = deque()
        self._number = 0
        self._end = 0

    def __iter__(self) -> Iterator[InputLine]:
        """Return itself: the lines can be had once."""
        return self

    def __next__(self) -> InputLine:
        """Return the next line; blocks as long as the stream does."""
        if self._returned:
            return self._returned.popleft()
        raw = self._stream.readline(MAX_LINE_BYTES)
        if not raw:
            raise StopIteration
        self._number += 1
        self._end += len(raw)
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            return self._overlong(raw[:_KEPT_OF_OVERLONG])
        encoding = "utf-8-sig" if self._number == 1 else "utf-8"
        text = raw.decode(encoding, "surrogateescape").removesuffix("\n")
        problem = None if text.isascii() else _encoding_problem(text)
        return InputLine(self._number, text, self._end, problem=problem)

    def _overlong(self, start: bytes) -> InputLine:
        """Read on to the end of a line that is too long, keeping only its ``start``."""
        while part := self._stream.readline(MAX_LINE_BYTES):
            self._end += len(part)
            if part.endswith(b"\n"):
                break
        problem = f"longer than {MAX_LINE_BYTES // 2**20} MiB; only its start is shown"
        text = start.decode("utf-8", "surrogateescape")
        return InputLine(self._number, text, self._end, problem=problem)

    def give_back(self, lines: list[InputLine]) -> None:
        """Let these lines be the next ones again."""
        self._returned.extendleft(reversed(lines))


def _encoding_problem(text: str) -> str | None:
    for position, character in enumerate(text, start=1):
        if "\udc80" <= character <= "\udcff":
            byte = ord(character) - 0xDC00
            return f"not UTF-8: byte 0x{byte:02x} at character {position}; convert it to UTF-8"
    return None
