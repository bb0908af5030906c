"""Views: a snapshot as rows of text. Pure functions, for the screen and for plain text.

The texts come from the program, unescaped: they are escaped where they are shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from rxlanggraph.cli.tables import duration
from rxlanggraph.live.schema import EndedRun, ErrorInfo, NodeSpan, RunInFlight, Snapshot

__all__ = ["VIEWS", "Column", "Row", "View", "counts_of", "shown_views", "throughput"]

# Seconds of which the throughput is an average.
_SPEED_SECONDS = 10
_STATES: Final = {"waiting_for_thread": "waiting"}
_HIDDEN: Final = "hidden"


class Column(NamedTuple):
    """A column: its title, its width on a narrow screen, and whether a wide one widens it."""

    title: str
    width: int
    grows: bool = False


class Row(NamedTuple):
    """A row.

    Attributes:
        key: Names it, from snapshot to snapshot.
        cells: One for each column.
        detail: More about it, in lines.
        thread, graph: What it is about, for a filter.
        run_id, question_id: What actions are about.
    """

    key: str
    cells: tuple[str, ...]
    detail: str
    thread: str = ""
    graph: str = ""
    run_id: int | None = None
    question_id: str | None = None

    def matches(self, text: str) -> bool:
        """Whether its thread or graph has ``text`` in it, in whatever case."""
        text = text.casefold()
        return text in self.thread.casefold() or text in self.graph.casefold()


class View(NamedTuple):
    """A kind of rows.

    Attributes:
        name: Its name in code.
        title: Its name on the screen.
        columns: Its columns.
        rows: Returns its rows.
        list: The list of the snapshot that it shows, of which some may be left out.
        of_journal: Whether a journal has it, too.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Callable[[Snapshot], Iterator[Row]]
    list: str = ""
    of_journal: bool = False


def shown_views(snapshot: Snapshot) -> list[View]:
    """Return the views that a snapshot has data for."""
    if snapshot["kind"] == "journal":
        return [view for view in reversed(VIEWS) if view.of_journal]
    has_journal = snapshot["journal"] is not None
    return [view for view in VIEWS if has_journal or view.name != "journal"]


def counts_of(snapshot: Snapshot) -> str:
    """Return the counters in one line."""
    counts, lag = snapshot["counts"], snapshot["loop"]["lag"]
    most = counts["max_concurrency"]
    parts = [
        f"active {counts['active']:,}" + ("" if most is None else f" of {most:,}"),
        f"queued {counts['queued']:,}",
        _speed(throughput(snapshot)),
        f"ok {counts['succeeded']:,}",
        f"failed {counts['failed']:,}",
        f"cancelled {counts['cancelled']:,}",
        "" if lag is None else f"loop lag {lag * 1000:,.0f} ms",
    ]
    return "  ".join(filter(None, parts))


def throughput(snapshot: Snapshot) -> list[int]:
    """Return how many messages have ended in each second, without the current one."""
    history = snapshot["history"]
    endings = [history["ok"], history["error"], history["interrupted"]]
    endings += [history["cancelled"], history["timed_out"], history["rejected"]]
    return [sum(second) for second in zip(*endings, strict=True)][:-1]


def _speed(ended: list[int]) -> str:
    speed = sum(ended[-_SPEED_SECONDS:]) / _SPEED_SECONDS
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s"


# -- runs ------------------------------------------------------------------------------------------

_THREAD, _GRAPH, _NODE = Column("thread", 16, True), Column("graph", 12, True), Column("node", 12)


def _runs(snapshot: Snapshot) -> Iterator[Row]:
    for run in snapshot["runs"]:
        cells = (
            run["thread_id"] or "-",
            run["name"],
            run["node"] or "",
            _state(run),
            duration(run["age"]),
            duration(run["waiting"]),
            str(run["attempt"] or ""),
        )
        yield _run_row(run, cells, _about_run(run, snapshot["time"]))


def _stuck(snapshot: Snapshot) -> Iterator[Row]:
    """The stuck runs, and what has blocked the loop."""
    for run in snapshot["runs"]:
        if run["stuck"]:
            stack = run["stack"] or "its stack is not in the snapshot: the key s fetches it"
            where = _last_place(run["stack"] or "")
            cells = (run["thread_id"] or "-", run["name"], _state(run), duration(run["age"]), where)
            yield _run_row(run, cells, f"{_about_run(run, snapshot['time'])}\n{stack}")
    for number, blocked in enumerate(snapshot["loop"]["blocked"]):
        seconds = duration(blocked["seconds"])
        ago = duration(snapshot["time"] - blocked["time"])
        detail = f"blocked the loop for {seconds}, {ago} ago, in {blocked['where']}"
        cells = ("the loop", "", "blocked", seconds, blocked["where"])
        key = f"{blocked['time']} {number}"
        yield Row(key, cells, f"{detail}\n{blocked['stack']}")


def _run_row(run: RunInFlight, cells: tuple[str, ...], detail: str) -> Row:
    return Row(str(run["id"]), cells, detail, run["thread_id"] or "", run["name"], run_id=run["id"])


def _about_run(run: RunInFlight, now: float) -> str:
    nodes = ", ".join(_span(span, now) for span in run["nodes"])
    first = f"run {run['id']}, thread {run['thread_id'] or '-'}, message {run['message_id'] or '-'}"
    return f"{first}\nnodes: {nodes}" if nodes else first


def _span(span: NodeSpan, now: float) -> str:
    began, ended = span["began"], span["ended"]
    if ended is None:
        return f"{span['node']} {duration(max(0.0, now - began))} so far"
    return f"{span['node']} {duration(max(0.0, ended - began))}"


def _state(run: RunInFlight) -> str:
    return _STATES.get(run["state"], run["state"])


def _last_place(stack: str) -> str:
    """Return where a stack ends: its last line that names a place in a file."""
    places = [line.strip() for line in stack.splitlines() if line.lstrip().startswith("File ")]
    return places[-1] if places else ""


# -- what has ended --------------------------------------------------------------------------------


def _ended(runs: Iterable[EndedRun], now: float) -> Iterator[Row]:
    for run in runs:
        thread, error = run["thread_id"], run["error"]
        cells = (
            thread or "-",
            run["name"],
            run["status"],
            f"{duration(max(0.0, now - run['ended']))} ago",
            duration(run["duration"]),
            str(run["attempt"]),
            "" if error is None else error["type"],
        )
        nodes = ", ".join(span["node"] for span in run["nodes"])
        lines = [f"thread {thread or '-'}, message {run['message_id']}"]
        lines += [f"nodes: {nodes}"] if nodes else []
        lines += [] if error is None else [_error(error)]
        key = f"{run['message_id']} {run['name']} {run['ended']}"
        yield Row(key, cells, "\n".join(lines), thread or "", run["name"])


def _error(error: ErrorInfo) -> str:
    node = "" if error["node"] is None else f" in {error['node']}"
    message = f"(its text is {_HIDDEN})" if error["message"] is None else error["message"]
    return f"{error['type']}{node}: {message}"


def _recent(snapshot: Snapshot) -> Iterator[Row]:
    return _ended(snapshot["recent"], snapshot["time"])


def _slowest(snapshot: Snapshot) -> Iterator[Row]:
    return _ended(snapshot["slowest"], snapshot["time"])


def _failures(snapshot: Snapshot) -> Iterator[Row]:
    for kind in snapshot["failures"]:
        last, thread = kind["last"], kind["thread_id"]
        cells = (
            f"{kind['count']:,}",
            kind["status"],
            kind["type"],
            kind["node"] or "",
            kind["name"],
            "" if last is None else f"{duration(max(0.0, snapshot['time'] - last))} ago",
        )
        error: ErrorInfo = {
            "type": kind["type"],
            "node": kind["node"],
            "message": kind["message"],
        }
        about = f"the last one: thread {thread or '-'}, message {kind['message_id'] or '-'}"
        key = json.dumps([kind["name"], kind["status"], kind["type"], kind["node"]])
        yield Row(key, cells, f"{about}\n{_error(error)}", thread or "", kind["name"])


# -- questions, and the journal --------------------------------------------------------------------


def _questions(snapshot: Snapshot) -> Iterator[Row]:
    for question in snapshot["interrupts"]:
        value = question["value"]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        asks = text if snapshot["shows_content"] else _HIDDEN
        cells = (
            question["thread_id"],
            question["name"],
            duration(max(0.0, snapshot["time"] - question["asked"])),
            "being answered" if question["answering"] else "waits",
            asks,
        )
        about = f"interrupt {question['interrupt_id']}, thread {question['thread_id']}"
        yield Row(
            question["id"],
            cells,
            f"{about}\nasks: {asks}",
            question["thread_id"],
            question["name"],
            question_id=question["id"],
        )


def _journal(snapshot: Snapshot) -> Iterator[Row]:
    progress = snapshot["journal"]
    if progress is None:
        return
    so_far = "" if progress["input_complete"] else " so far"
    numbers = {
        "lines": f"{progress['lines']:,}{so_far}",
        "answered": f"{progress['answered']:,}",
        "ok": f"{progress['ok']:,}",
        "failed": f"{progress['failed']:,}",
        "dead": f"{progress['dead']:,}",
        "invalid": f"{progress['invalid']:,}",
        "waiting": f"{progress['waiting']:,}",
        "in flight": f"{progress['in_flight']:,}",
    }
    about = f"{progress['journal']}: {progress['graph']} over {progress['input']}"
    detail = f"{about}\nbegun {progress['begun']}"
    for name, number in numbers.items():
        yield Row(name, (name, number), detail)
    for worker, count in progress["workers"].items():
        yield Row(f"worker {worker}", (f"worker {worker}", f"{count:,} in flight"), detail)


_ENDED_COLUMNS: Final = (
    Column("thread", 12, True),
    _GRAPH,
    Column("status", 11),
    Column("ended", 10),
    Column("took", 6),
    Column("try", 3),
    Column("error", 11, True),
)
VIEWS: Final = (
    View(
        "runs",
        "Runs",
        (
            _THREAD,
            _GRAPH,
            _NODE,
            Column("state", 10),
            Column("age", 6),
            Column("waited", 6),
            Column("try", 3),
        ),
        _runs,
        "runs",
    ),
    View("recent", "Recent", _ENDED_COLUMNS, _recent, "recent"),
    View("slowest", "Slowest", _ENDED_COLUMNS, _slowest),
    View(
        "stuck",
        "Stuck",
        (_THREAD, _GRAPH, Column("state", 10), Column("for", 6), Column("where", 24, True)),
        _stuck,
    ),
    View(
        "failures",
        "Failures",
        (
            Column("count", 7),
            Column("status", 9),
            Column("error", 18, True),
            Column("node", 12, True),
            _GRAPH,
            Column("last", 10),
        ),
        _failures,
        "failures",
        of_journal=True,
    ),
    View(
        "questions",
        "Questions",
        (_THREAD, _GRAPH, Column("age", 6), Column("state", 14), Column("asks", 20, True)),
        _questions,
        "interrupts",
    ),
    View(
        "journal",
        "Journal",
        (Column("what", 40, True), Column("number", 20)),
        _journal,
        of_journal=True,
    ),
)
"""All views, in their order on the screen."""
