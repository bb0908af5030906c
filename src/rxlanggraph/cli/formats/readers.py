"""Readers of JSON Lines and CSV, one line at a time.

Both yield an `InputLine` for every line that is not blank, valid or not, in constant memory: no
line is retained, and of a line longer than `MAX_LINE_BYTES` only the start is read into memory. A
reader is confined to the thread that iterates over it, which blocks as long as the input does.
"""

from __future__ import annotations

import csv
import errno
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from rxlanggraph.cli.errors import InputError
from rxlanggraph.state.codec import loads

__all__ = [
    "MAX_LINE_BYTES",
    "Format",
    "InputLine",
    "Source",
    "format_of",
    "open_source",
    "read_csv",
    "read_jsonl",
]

Format = Literal["jsonl", "csv"]
MAX_LINE_BYTES = 64 * 1024 * 1024  # a guess: above any real message, far below any memory
_BYTES_OF_OVERLONG = 1000  # the start of a line that is too long, for its record

# Levels of nesting that are left to the stack of what reads a line again. A guess.
_MARGIN = 200


class InputLine(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class Source:
    """An open input.

    Args:
        name: The path, or "standard input", for messages.
        lines: The lines, for one thread to iterate over.
        size: Bytes of the input, for a progress bar; None where that is unknown.
        stream: The stream behind ``lines``, to be closed.
    """

    name: str
    lines: Iterator[InputLine]
    size: int | None
    stream: BinaryIO


class _LineReader:
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


def read_jsonl(stream: BinaryIO) -> Iterator[InputLine]:
    """Yield the lines of JSON Lines; the JSON value of a line is its ``content``.

    For one thread; blocks as long as ``stream`` does. Blank lines are skipped.

    Args:
        stream: Open for reading bytes, UTF-8 with or without a byte order mark.

    Raises:
        OSError: Reading failed.
    """
    for line in _LineReader(stream):
        if line.problem is not None:
            yield line
        elif line.raw and not line.raw.isspace():
            yield _parsed_json(line)


def _parsed_json(line: InputLine) -> InputLine:
    try:
        content = _loads(line.raw)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or str(error)
        column = getattr(error, "colno", None)
        where = "" if column is None else f" at column {column}"
        return InputLine(line.number, line.raw, line.end, problem=f"not JSON: {reason}{where}")
    return InputLine(line.number, line.raw, line.end, content)


def _loads(text: str) -> Any:
    """Decode a line so that it can be decoded again where less of the stack is left.

    What breaks otherwise: the workers of a journal end with an error on a line that is in it.
    """
    if text.count("[") + text.count("{") < _MARGIN:
        return loads(text)
    try:
        content = loads(f"{'[' * _MARGIN}{text}{']' * _MARGIN}")
        for _ in range(_MARGIN):
            (content,) = content
    except ValueError:
        return loads(text)  # for the place in the text, or it is no JSON but for the brackets
    return content


def read_csv(stream: BinaryIO, name: str = "the input") -> Iterator[InputLine]:
    """Yield the records of a CSV file below its header; ``content`` is a dict of strings.

    For one thread; blocks as long as ``stream`` does. If a record cannot be read, only its first
    line is invalid: reading continues with the next line, so a stray quote affects no other record.

    Args:
        stream: Open for reading bytes, UTF-8 with or without a byte order mark.
        name: The name of the input, for errors.

    Raises:
        InputError: The header is invalid or names a column twice.
        OSError: Reading failed.
    """
    source = _LineReader(stream)
    header = next(_records(source), None)
    if header is None:
        return
    line, names, problem = header
    if problem is None and len(set(names)) < len(names):
        twice = next(column for column in names if names.count(column) > 1)
        problem = f"two columns are named {twice!r}; rename one"
    if problem is not None:
        raise InputError(f"{name}, line {line.number}: the CSV header is invalid: {problem}")
    for line, row, problem in _records(source):
        wrong = problem
        if wrong is None and len(row) != len(names):
            fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
            wrong = f"{fields}, but the header has {len(names)}"
        content = None if wrong else dict(zip(names, row, strict=True))
        yield InputLine(line.number, line.raw, line.end, content, wrong)


def _records(source: _LineReader) -> Iterator[tuple[InputLine, list[str], str | None]]:
    """Yield each record as a triple: its lines as one, its fields, and its problem or None."""
    taken: list[InputLine] = []

    def texts() -> Iterator[str]:
        for line in source:
            taken.append(line)
            yield line.raw + "\n"

    # Strict: otherwise a quote that is never closed would silently swallow the rest of the file.
    reader = csv.reader(texts(), strict=True)
    while True:
        taken.clear()
        try:
            row = next(reader)
            problem = next((line.problem for line in taken if line.problem), None)
        except StopIteration:
            return
        except csv.Error as error:
            row, problem = [], f"not CSV: {error}"
            # A new reader: one that has exhausted its source stays at its end.
            reader = csv.reader(texts(), strict=True)
        if problem is not None:
            source.give_back(taken[1:])
            yield taken[0], [], problem
        elif row:
            raw = "\n".join(line.raw for line in taken)
            yield InputLine(taken[0].number, raw, taken[-1].end), row, None


def _with_threads(lines: Iterator[InputLine], key: str) -> Iterator[InputLine]:
    """Yield the lines, each message with the thread that its field ``key`` names."""
    for line in lines:
        if line.problem is not None:
            yield line
            continue
        thread_id, problem = _thread_of(line.content, key)
        content = line.content if problem is None else None
        yield InputLine(line.number, line.raw, line.end, content, problem, thread_id)


def _thread_of(content: object, key: str) -> tuple[str | None, str | None]:
    """Return the thread of ``content`` and None, or None and the reason why it has none."""
    if not isinstance(content, dict):
        return None, f"--thread-key {key}: the line is not a JSON object"
    if key not in content:
        return None, f"--thread-key {key}: the line has no such field"
    value = content[key]
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return (
            None,
            f"--thread-key {key}: {value!r} cannot name a thread; a string or an integer can",
        )
    try:
        return str(value).encode().decode(), None
    except UnicodeEncodeError:
        return None, f"--thread-key {key}: {value!r} cannot be written as UTF-8"


def open_source(path: str, form: Format | None = None, *, thread_key: str | None = None) -> Source:
    """Open an input for reading.

    Any thread; blocks only as long as opening a file does (a named pipe: until it has a writer).

    Args:
        path: A file's path, or ``-`` for standard input.
        form: The format; None goes by the suffix, see `format_of`.
        thread_key: The field of a message's content that names its thread. A line without it is
            invalid. None: no message has a thread.

    Returns:
        The open source. The caller closes its ``stream``.

    Raises:
        InputError: It cannot be opened.
    """
    name = "standard input" if path == "-" else path
    try:
        stream = _standard_input() if path == "-" else _open(path)
        size = _size(stream)
    except OSError as error:
        raise InputError(
            f"cannot read {name}: {error.strerror or error}; give a readable file, or - for "
            "standard input"
        ) from error
    form = form or format_of(path)
    readers: dict[Format, Callable[[], Iterator[InputLine]]] = {
        "jsonl": lambda: read_jsonl(stream),
        "csv": lambda: read_csv(stream, name),
    }
    lines = readers[form]()
    if thread_key is not None:
        lines = _with_threads(lines, thread_key)
    return Source(name, lines, size, stream)


def format_of(path: str) -> Format:
    """Return the format that a path's suffix stands for: CSV for ``.csv``, else JSON Lines."""
    return "csv" if Path(path).suffix.lower() == ".csv" else "jsonl"


def _open(path: str | int) -> BinaryIO:
    return open(path, "rb", closefd=isinstance(path, str))


def _standard_input() -> BinaryIO:
    """Return standard input with a buffer of its own.

    The interpreter takes the lock of `sys.stdin`'s buffer at exit, and aborts the process if a
    reader thread is still blocked in a read under that lock.
    """
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    try:
        return _open(sys.stdin.fileno())
    except (OSError, AttributeError, ValueError):
        return sys.stdin.buffer  # replaced by something without a descriptor, as tests do


def _size(stream: BinaryIO) -> int | None:
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # io.UnsupportedOperation is one: no descriptor
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
