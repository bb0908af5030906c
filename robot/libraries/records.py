"""Keywords for what the command writes: its records, and the summary that accounts for them."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

Record = dict[str, Any]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FIELDS = ["line", "id", "thread_id", "status", "content", "error", "duration"]
RETRIED = ["attempts", "earlier_errors"]

_SUMMARY = re.compile(
    r"read (?P<read>[\d,]+): (?P<ok>[\d,]+) ok, (?P<failed>[\d,]+) failed, "
    r"(?P<invalid>[\d,]+) invalid(, (?P<cancelled>[\d,]+) cancelled)?, "
    r"(?P<open>[\d,]+) (not run|without a record)"
)
_WITHOUT_RECORD = re.compile(r"without a record: lines? (?P<ranges>[\d, -]+) of")


# -- reading -----------------------------------------------------------------------------------


def records_in_text(text: str) -> list[Record]:
    """Return the records; each line must be whole, and JSON."""
    assert not text or text.endswith("\n"), f"the last line is cut off: {text[-200:]!r}"
    return [json.loads(line) for line in text.splitlines()]


def records_in_file(path: str) -> list[Record]:
    return records_in_text(Path(path).read_text(encoding="utf-8"))


def each_has(records: list[Record], field: str, value: Any) -> None:
    wrong = [record for record in records if record[field] != value]
    assert not wrong, f"{len(wrong)} of {len(records)} differ, the first: {wrong[0]}"


def lines_of(records: list[Record]) -> list[int]:
    return [record["line"] for record in records]


def contents_of(records: list[Record]) -> list[Any]:
    """Return the contents, in the order of the input."""
    return [record["content"] for record in _sorted(records)]


def record_of_line(records: list[Record], number: int) -> Record:
    (record,) = (record for record in records if record["line"] == number)
    return record


def lines_are_in_order(records: list[Record], first: int, last: int) -> None:
    actual = lines_of(records)
    assert actual == list(range(first, last + 1)), f"the lines are {actual}"


def _sorted(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record["line"])


# -- the summary -------------------------------------------------------------------------------


def every_line_is_accounted_for(
    said: str, *records: list[Record], first: int = 1, lines: int | None = None
) -> dict[str, int]:
    """Compare the summary with the records, of one file or two.

    Each line that was read has one record, or is named as having none; the numbers in the summary
    are those of the records. ``lines`` is how many were read, where the test can know that.
    """
    found = _SUMMARY.search(said)
    assert found is not None, f"no summary in what it said:\n{said}"
    counts = {key: int((text or "0").replace(",", "")) for key, text in found.groupdict().items()}
    written = list(chain.from_iterable(records))
    statuses = Counter(_outcome(record) for record in written)
    for outcome in ("ok", "failed", "invalid", "cancelled"):
        assert statuses[outcome] == counts[outcome], (
            f"{statuses} are the records, {found[0]!r} was said"
        )
    without = _WITHOUT_RECORD.search(said)
    numbers = lines_of(written) + (_numbers(without["ranges"]) if without else [])
    assert sorted(numbers) == list(range(first, first + counts["read"])), sorted(numbers)
    assert len(numbers) - len(written) == counts["open"], found[0]
    assert lines is None or counts["read"] == lines, found[0]
    for record in written:
        expected = FIELDS + (RETRIED if "attempts" in record else [])
        assert [key for key in record if key != "raw"] == expected, record
    return counts


def _outcome(record: Record) -> str:
    status = record["status"]
    return status if status in ("ok", "invalid", "cancelled") else "failed"


def _numbers(ranges: str) -> list[int]:
    numbers: list[int] = []
    for part in ranges.split(", "):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


# -- the examples' data ------------------------------------------------------------------------


def folder_of_the_examples() -> str:
    return str(EXAMPLES)


def rows_of(name: str) -> list[dict[str, str]]:
    with (EXAMPLES / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def copy_as_json_lines(name: str, path: str) -> None:
    """Write the rows of a CSV file of the examples as JSON Lines."""
    text = "".join(json.dumps(row) + "\n" for row in rows_of(name))
    Path(path).write_text(text, encoding="utf-8")


def each_airport_is_surveyed_as_plain_python_does(records: list[Record]) -> None:
    """Compare record by record, also that each state was one thread."""
    ordered = _sorted(records)
    rows = rows_of("airports.csv")
    assert len(ordered) == len(rows), f"{len(ordered)} records for {len(rows)} airports"
    seen: dict[str, list[tuple[float, str]]] = {}
    for record, row in zip(ordered, rows, strict=True):
        state = seen.setdefault(row["state"], [])
        state.append((float(row["latitude"]), row["iata"]))
        content = record["content"]
        assert record["thread_id"] == row["state"], record
        assert content["iata"] == row["iata"], record
        assert content["airports"] == len(state), record
        assert abs(content["mean_latitude"] - sum(lat for lat, _ in state) / len(state)) < 1e-9
        northernmost = max(latitude for latitude, _ in state)
        first_there = next(iata for latitude, iata in state if latitude == northernmost)
        assert content["northernmost"] == first_there, record


def warmths_are_those_of_the_file(records: list[Record]) -> None:
    expected = [float(row["temp_max"]) for row in rows_of("seattle-weather.csv")]
    assert contents_of(records) == expected
