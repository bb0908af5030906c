"""One record, one line of JSON: what the command writes about one line of its input.

Everything here is a pure function, for any thread.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from rxlanggraph.cli.formats.lines import InputLine
from rxlanggraph.errors import error_text
from rxlanggraph.messages import StreamMessage

__all__ = ["Record", "invalid_record", "result_record", "to_line", "without_content"]

Record = dict[str, Any]


def result_record(number: int, result: StreamMessage) -> Record:
    """Return the record of a run that has ended, well or not."""
    return {
        "line": number,
        "id": (result.source or result).id,
        "thread_id": result.thread_id,
        "status": result.status,
        "content": result.content,
        "error": None if result.error is None else _error(result.error),
        "duration": result.duration,
    }


def invalid_record(line: InputLine) -> Record:
    """Return the record of a line that is not a message, and never ran."""
    return {
        "line": line.number,
        "id": None,
        "thread_id": None,
        "status": "invalid",
        "content": None,
        "error": {"type": "InvalidLine", "message": line.problem},
        "duration": None,
    }


def _error(error: BaseException) -> Record:
    return {"type": type(error).__name__, "message": error_text(error)}


def to_line(record: Record) -> tuple[bytes, Record]:
    """Return ``record`` as one line of JSON, newline included, and as it was really written.

    What pydantic knows is written as pydantic writes it: LangChain messages and other models,
    dataclasses, datetimes, enums. Bytes become base64, NaN and the infinities strings.

    Args:
        record: From `result_record` or `invalid_record`, perhaps with more fields.

    Returns:
        The line and its record. Where the content cannot be written as JSON the record's status
        is ``"error"``, its error says what could not be written, and its content is None.
    """
    try:
        return _json(record), record
    except Exception as error:  # a user's model may raise anything from its serializer
        reason = {
            "type": "UnserializableResult",
            "message": f"the result cannot be written as JSON: {error_text(error)}; return plain "
            "data, a dataclass or a pydantic model",
        }
    written = without_content(record, record["error"] or reason)
    return _json(written), written


def without_content(record: Record, error: Record) -> Record:
    """Return the record of a result that cannot be kept, with the ``error`` that says why."""
    status = "error" if record["status"] == "ok" else record["status"]
    return record | {"content": None, "status": status, "error": error}


def _json(record: Record) -> bytes:
    return to_json(record, bytes_mode="base64", inf_nan_mode="strings") + b"\n"
