"""Records: one line of JSON for each line of the input.

Everything here is a pure function, for any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from rxlanggraph.cli.formats.failures import exception_record
from rxlanggraph.cli.formats.readers import InputLine
from rxlanggraph.errors import RunDrainedError, error_text
from rxlanggraph.messages import StreamMessage

__all__ = [
    "Record",
    "invalid_record",
    "result_record",
    "to_line",
    "was_drained",
    "without_content",
]

Record = dict[str, Any]


def result_record(
    number: int,
    result: StreamMessage,
    *,
    failed_attempts: Sequence[Record] = (),
    tracebacks: bool = False,
    usage: Mapping[str, Any] | None = None,
) -> Record:
    """Return the record of a run that has ended, with whatever status.

    A graph that asks has its questions in it; a run that was drained, the checkpoint where it can
    go on, or None if it has not begun.

    Args:
        number: The number of the line.
        result: The result of the run.
        failed_attempts: The errors of the attempts before the last one, from `exception_record`.
        tracebacks: Whether the error has its traceback.
        usage: What the run has used of models, by their names.
    """
    record = {
        "line": number,
        "id": (result.source or result).id,
        "thread_id": result.thread_id,
        "status": result.status,
        "content": result.content,
        "error": (
            None if result.error is None else exception_record(result.error, tracebacks=tracebacks)
        ),
        "duration": None if result.duration is None else round(result.duration, 6),
    }
    if failed_attempts:
        record["attempts"] = len(failed_attempts) + 1
        record["earlier_errors"] = list(failed_attempts)
    if usage:
        record["usage"] = usage
    if result.interrupts:
        record["interrupts"] = [
            {"id": each.id, "value": each.value, "response_schema": each.response_schema}
            for each in result.interrupts
        ]
    if isinstance(result.error, RunDrainedError):
        record["checkpoint_id"] = result.error.checkpoint_id
    return record


def was_drained(record: Record) -> bool:
    """Whether ``record`` is that of a run which was asked to stop, begun or not."""
    return "checkpoint_id" in record


def invalid_record(line: InputLine) -> Record:
    """Return the record of a line that is not a message."""
    return {
        "line": line.number,
        "id": None,
        "thread_id": None,
        "status": "invalid",
        "content": None,
        "error": {"type": "InvalidLine", "message": line.problem, "node": None},
        "duration": None,
    }


def to_line(record: Record) -> tuple[bytes, Record]:
    """Return ``record`` as one line of JSON with its newline, and the record in that line.

    Values are encoded as pydantic does: LangChain messages and other models, dataclasses,
    datetimes, enums. Bytes become base64; NaN and the infinities become strings.

    Args:
        record: A record from `result_record` or `invalid_record`; it may have further fields.

    Returns:
        The line and its record. If the content cannot be encoded as JSON, that record has the
        status ``"error"``, an error that tells the reason, and no content.
    """
    try:
        return _json(record), record
    except Exception as error:  # a user's model may raise anything from its serializer
        reason = {
            "type": "UnserializableResult",
            "message": f"the result cannot be written as JSON: {error_text(error)}; return plain "
            "data, a dataclass or a pydantic model",
            "node": None,
        }
    written = without_content(record, record["error"] or reason)
    return _json(written), written


def without_content(record: Record, error: Record) -> Record:
    """Return the record of a result that cannot be stored, with the ``error`` for it."""
    status = "error" if record["status"] == "ok" else record["status"]
    without: Record = {"content": None, "status": status, "error": error}
    if "interrupts" in record:  # their values cannot be stored either; by their ids, they can be
        without["interrupts"] = [{"id": each["id"]} for each in record["interrupts"]]  # answered
    return record | without


def _json(record: Record) -> bytes:
    return to_json(record, bytes_mode="base64", inf_nan_mode="strings") + b"\n"
