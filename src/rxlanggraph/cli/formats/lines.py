"""LineReader: numbered lines of a binary stream, valid or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["MAX_LINE_BYTES", "InputLine", "LineReader"]

MAX_LINE_BYTES = 64 * 1024 * 1024  # a guess: above any real message, far below any memory
_BYTES_OF_OVERLONG = 1000  # the start of a line that is too long, for its record


@dataclass(frozen=True, slots=True)
class InputLine:
    """One line of the input, or one CSV record, which may span several.

    Args:
        number: Its first line in the input, counted from 1, including blank lines and a CSV header.
        raw: Its text without the newline; bytes that are not UTF-8 are surrogate escapes.
        end: Bytes of the input up to the end of the line.
        content: The content of the message; None if the line is invalid.
        problem: The reason why the line is invalid, or None.
        thread_id: The thread of the message, or None.
    """

    number: int
    raw: str
    end: int
    content: Any = None
    problem: str | None = None
    thread_id: str | None = None


class LineReader:
    """Iterates over the lines of a binary stream, as text with number and offset.

    Confined to one thread, which blocks as long as the stream does.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._returned: deque[InputLine] = deque()
        self._number = 0
        self._end = 0

    def __iter__(self) -> Iterator[InputLine]:
        """Return the reader itself: the lines can be read once."""
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
            return self._overlong(raw[:_BYTES_OF_OVERLONG])
        encoding = "utf-8-sig" if self._number == 1 else "utf-8"
        text = raw.decode(encoding, "surrogateescape").removesuffix("\n")
        problem = None if text.isascii() else _encoding_problem(text)
        return InputLine(self._number, text, self._end, problem=problem)

    def _overlong(self, start: bytes) -> InputLine:
        """Skip to the end of a line that is too long; return it with only its ``start``."""
        while part := self._stream.readline(MAX_LINE_BYTES):
            self._end += len(part)
            if part.endswith(b"\n"):
                break
        problem = f"longer than {MAX_LINE_BYTES // 2**20} MiB; only its start is shown"
        text = start.decode("utf-8", "surrogateescape")
        return InputLine(self._number, text, self._end, problem=problem)

    def give_back(self, lines: list[InputLine]) -> None:
        """Make these lines the next ones to be read again."""
        self._returned.extendleft(reversed(lines))


def _encoding_problem(text: str) -> str | None:
    for position, character in enumerate(text, start=1):
        if "\udc80" <= character <= "\udcff":
            byte = ord(character) - 0xDC00
            return f"not UTF-8: byte 0x{byte:02x} at character {position}; convert it to UTF-8"
    return None
