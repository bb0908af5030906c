"""The commands of ``rxlanggraph state``: thin layers over `rxlanggraph.state`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import click

from rxlanggraph.cli.completion import complete_file
from rxlanggraph.cli.errors import ExitStatus, NotFoundError
from rxlanggraph.cli.option_types import whole_number
from rxlanggraph.cli.state.rendering import (
    SCHEDULE_COLUMNS,
    STATS_COLUMNS,
    TASK_COLUMNS,
    schedule_data,
    schedule_row,
    stats_data,
    stats_row,
    task_data,
    task_lines,
    task_row,
)
from rxlanggraph.cli.stdio import print_stderr, print_stdout
from rxlanggraph.cli.tables import columns, duration
from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.validation import check_duration

if TYPE_CHECKING:
    from rxlanggraph.cli.state.location import StoreLocation
    from rxlanggraph.state import DeadLetter, QueuedTask, State
    from rxlanggraph.state.backend import HeldLock, KeyInfo, TaskState

__all__ = ["state"]

_T = TypeVar("_T")
_STATES: Final = ("waiting", "claimed", "completed", "dead")
# Rows in a table; JSON has all.
_SHOWN: Final = 50
_ERROR_WIDTH: Final = 100
# The largest integer that every database accepts.
_MAX_INTEGER: Final = 2**63 - 1
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class _Place(NamedTuple):
    """What the group was given."""

    where: str
    namespace: str
    is_journal: bool


def _seconds(value: object) -> float:
    text = str(value)  # a file of settings may have a number
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a duration: 30s, 10m, 2h or 7d")
    try:  # here, so that --dry-run refuses what the call would
        return check_duration("TIME", float(match[1]) * _UNITS[match[2]], zero=True)
    except InvalidArgumentError as error:
        raise click.BadParameter(str(error)) from error


_json = click.option("--json", "as_json", is_flag=True, help="JSON, one object per line.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
_limit = click.option(
    "--limit",
    type=whole_number(1),
    metavar="N",
    help=f"Show N at most.  [default: {_SHOWN}; all with --json]",
)
_states = click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    help="Only tasks in this state; may be repeated. Delayed ones are waiting.",
)
_older_than = click.option(
    "--older-than",
    type=_seconds,
    metavar="TIME",
    help="Only tasks that have been in their state for longer: 30s, 10m, 2h, 7d.",
)
_queue = click.argument("queue")


class _Group(click.Group):
    """A group whose options come before its argument, and whose error says so."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take the next word for a command, unless it is an option of the group's."""
        option = args[0].partition("=")[0]
        if any(option in each.opts for each in self.get_params(ctx)):
            raise click.UsageError(
                f"write {option} before URL: state {option} ... URL COMMAND", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Group,
    epilog="Exit status: 0; 1 if a migration is due, or a named task is not there or has ended; 2 "
    "if the arguments, the state or its version cannot be used; 4 if the output is closed; 5 if "
    "the server does not answer.",
)
@click.argument("where", metavar="URL", shell_complete=complete_file)
@click.option(
    "--namespace", default="rxlanggraph", show_default=True, help="As given to open_state."
)
@click.option(
    "--journal", "is_journal", is_flag=True, help="URL is that of a journal, as given to 'run'."
)
@click.pass_context
def state(context: click.Context, where: str, namespace: str, *, is_journal: bool) -> None:
    """Manage shared state: queues, tasks, locks and keys.

    URL names a file (sqlite:///FILE, or its path) or a server (postgresql://..., redis://...).
    A server's password is read from RXLANGGRAPH_STATE_PASSWORD, or from the file that
    RXLANGGRAPH_STATE_PASSWORD_FILE names; that of a journal as for 'run'. Only 'migrate' changes
    the format of data that an older release has written.
    """
    context.obj = _Place(where, namespace, is_journal)


# -- looking ---------------------------------------------------------------------------------------


@state.command()
@_json
@click.pass_obj
def queues(place: _Place, *, as_json: bool) -> int:
    """List the queues, and count their tasks by state."""

    async def look(opened: State) -> list[tuple[str, Any]]:
        return [(queue, await opened.stats(queue)) for queue in await opened.queues()]

    found = _run(place, look)
    if as_json:
        _print_json(stats_data(*each) for each in found)
    else:
        _print([columns([STATS_COLUMNS, *(stats_row(*each) for each in found)])])
    return ExitStatus.OK


@state.command()
@_queue
@_json
@click.pass_obj
def stats(place: _Place, queue: str, *, as_json: bool) -> int:
    """Count the tasks of QUEUE, by state and by worker."""
    found = _run(place, lambda opened: opened.stats(queue))
    if as_json:
        _print_json([stats_data(queue, found)])
        return ExitStatus.OK
    parts = [columns([STATS_COLUMNS, stats_row(queue, found)])]
    workers = [(worker, f"{count:,}") for worker, count in sorted(found.by_worker.items())]
    if workers:
        parts += ["", columns([("worker", "claimed"), *workers])]
    _print(parts)
    return ExitStatus.OK


@state.command()
@_queue
@_states
@click.option("--thread", "thread_id", metavar="ID", help="Only tasks of this thread.")
@_older_than
@click.option(
    "--newer-than", type=_seconds, metavar="TIME", help="Only tasks in their state for no longer."
)
@_limit
@_json
@click.pass_obj
def tasks(
    place: _Place,
    queue: str,
    states: Sequence[TaskState],
    *,
    thread_id: str | None,
    older_than: float | None,
    newer_than: float | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """List the tasks of QUEUE, without their items.

    The age of a task is the time in its state: since it was claimed or ended, and of a waiting
    task since it was added.
    """
    shown: _Shown[QueuedTask] = _Shown(
        TASK_COLUMNS, task_row, lambda task: task_data(task, texts=False)
    )

    async def look(opened: State) -> None:
        found = opened.iter_tasks(
            queue,
            states=states or None,
            thread_id=thread_id,
            older_than=older_than,
            newer_than=newer_than,
        )
        await _list(found, shown, limit, as_json)

    _run(place, look)
    return ExitStatus.OK


@state.command()
@_queue
@click.argument("task_id", metavar="ID")
@_json
@click.pass_obj
def task(place: _Place, queue: str, task_id: str, *, as_json: bool) -> int:
    """Show one task of QUEUE: its history, item, result and error."""
    found = _run(place, lambda opened: opened.task(queue, task_id))
    if found is None:
        raise NotFoundError(
            f"{queue!r} has no task {task_id!r}: see 'rxlanggraph state URL tasks {queue}'"
        )
    if as_json:
        _print_json([task_data(found, texts=True)])
    else:
        _print([task_lines(found)])
    return ExitStatus.OK


@state.command("dead-letters")
@_queue
@_limit
@_json
@click.pass_obj
def dead_letters(place: _Place, queue: str, *, limit: int | None, as_json: bool) -> int:
    """List the dead tasks of QUEUE, with their errors.

    They are in the order of adding.
    """
    shown = _Shown(("task", "attempts", "worker", "key", "thread", "error"), _letter_row, asdict)
    _run(place, lambda opened: _list(opened.iter_dead_letters(queue), shown, limit, as_json))
    return ExitStatus.OK


@state.command()
@_limit
@_json
@click.pass_obj
def locks(place: _Place, *, limit: int | None, as_json: bool) -> int:
    """List the locks that are held, with their fencing tokens."""
    shown: _Shown[HeldLock] = _Shown(
        ("lock", "token", "lease ends in"),
        lambda lock: (lock.key, str(lock.token), duration(lock.expires_in)),
        lambda lock: lock._asdict(),
    )
    _run(place, lambda opened: _list(opened.iter_locks(), shown, limit, as_json))
    return ExitStatus.OK


@state.command()
@click.option("--prefix", default="", metavar="TEXT", help="Only keys with this prefix.")
@_limit
@_json
@click.pass_obj
def keys(place: _Place, *, prefix: str, limit: int | None, as_json: bool) -> int:
    """List the keys that have values."""
    shown: _Shown[KeyInfo] = _Shown(
        ("key", "version", "expires in"),
        lambda key: (key.key, str(key.version), duration(key.expires_in)),
        lambda key: key._asdict(),
    )
    _run(place, lambda opened: _list(opened.iter_keys(prefix), shown, limit, as_json))
    return ExitStatus.OK


@state.command()
@click.argument("key")
@click.pass_obj
def value(place: _Place, key: str) -> int:
    """Print the value of KEY, as JSON."""
    found = _run(place, lambda opened: opened.get(key))
    if not found.version:
        raise NotFoundError(f"there is no key {key!r}: see 'rxlanggraph state URL keys'")
    _print_json([found.value])
    return ExitStatus.OK


@state.command()
@_limit
@_json
@click.pass_obj
def schedules(place: _Place, *, limit: int | None, as_json: bool) -> int:
    """List the schedules of periodic tasks.

    Shows them as their scheduler has last declared them.
    """
    from rxlanggraph.state.schedules import iter_schedules  # noqa: PLC0415 - as in `_run`

    shown = _Shown(SCHEDULE_COLUMNS, schedule_row, schedule_data)
    _run(place, lambda opened: _list(iter_schedules(opened), shown, limit, as_json))
    return ExitStatus.OK


# -- changing --------------------------------------------------------------------------------------


@state.command()
@_queue
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All dead tasks of the queue.")
@_dry_run
@_json
@click.pass_obj
def requeue(
    place: _Place, queue: str, ids: Sequence[str], *, every: bool, dry_run: bool, as_json: bool
) -> int:
    """Put dead tasks back at the end of QUEUE.

    Their attempts are counted from 0 again.
    """
    if bool(ids) is every:
        raise click.UsageError("name the tasks to requeue, or give --all")

    async def change(opened: State) -> int:
        if not dry_run:
            return await opened.requeue(queue, None if every else ids)
        if every:
            return (await opened.stats(queue)).dead
        return len(await _in_states(opened, queue, ids, ("dead",)))

    count = _run(place, change)
    _print_outcome(
        ("requeue", "requeued"), count, "dead task", queue, dry_run=dry_run, as_json=as_json
    )
    return _status(count, queue, ids)


@state.command()
@_queue
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_dry_run
@_json
@click.pass_obj
def cancel(place: _Place, queue: str, ids: Sequence[str], *, dry_run: bool, as_json: bool) -> int:
    """End waiting and claimed tasks of QUEUE.

    They become dead letters. A worker that has one loses its claim; its code is not interrupted.
    """

    async def change(opened: State) -> int:
        if dry_run:
            return len(await _in_states(opened, queue, ids, ("waiting", "claimed")))
        return await opened.cancel_tasks(queue, ids)

    count = _run(place, change)
    _print_outcome(("cancel", "cancelled"), count, "task", queue, dry_run=dry_run, as_json=as_json)
    return _status(count, queue, ids)


@state.command()
@_queue
@_states
@_older_than
@click.option(
    "--keep",
    type=whole_number(0, _MAX_INTEGER),
    metavar="N",
    help="Keep the N that came into their state last.",
)
@_dry_run
@_json
@click.pass_obj
def purge(
    place: _Place,
    queue: str,
    states: Sequence[TaskState],
    *,
    older_than: float | None,
    keep: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete the completed tasks of QUEUE, or those in --state.

    Their keys and results are deleted too. The claims of tasks that are purged are lost.
    """
    wanted: Sequence[TaskState] = states or ("completed",)

    async def change(opened: State) -> int:
        if not dry_run:
            return await opened.purge(queue, wanted, older_than=older_than, keep=keep)
        ages = [task.age async for task in opened.iter_tasks(queue, states=wanted)]
        # Those that are kept are the youngest.
        ages = sorted(ages, reverse=True)[: max(0, len(ages) - (keep or 0))]
        return sum(older_than is None or age > older_than for age in ages)

    count = _run(place, change)
    what = f"{' or '.join(dict.fromkeys(wanted))} task"
    _print_outcome(("purge", "purged"), count, what, queue, dry_run=dry_run, as_json=as_json)
    return ExitStatus.OK


@state.command()
@click.option("--check", is_flag=True, help="Only report whether a migration is due (status 1).")
@_json
@click.pass_obj
def migrate(place: _Place, *, check: bool, as_json: bool) -> int:
    """Migrate the data of an older release.

    'open_state' does this too. Programs of the older release that have the state open continue,
    but cannot open it again.
    """
    from rxlanggraph.cli.state.location import version_of  # noqa: PLC0415 - as in `_run`

    version = version_of(_location(place), migrate=not check)
    if as_json:
        _print_json([version._asdict() | {"due": version.is_due and check}])
    elif not version.is_due:
        _print([f"version {version.stored}: up to date"])
    elif check:
        _print([f"version {version.stored}: a migration to version {version.needed} is due"])
    else:
        _print([f"migrated from version {version.stored} to version {version.needed}"])
    return ExitStatus.SOME_FAILED if check and version.is_due else ExitStatus.OK


# -- parts -----------------------------------------------------------------------------------------


def _run(place: _Place, do: Callable[[State], Awaitable[_T]]) -> _T:
    # Imported here: databases are slow to import, and --help does not need them.
    from rxlanggraph.cli.state.location import in_state  # noqa: PLC0415

    return in_state(_location(place), do)


def _location(place: _Place) -> StoreLocation:
    from rxlanggraph.cli.state.location import journal_store, parse_store  # noqa: PLC0415

    if place.is_journal:
        return journal_store(place.where)
    return parse_store(place.where, place.namespace)


async def _in_states(
    opened: State, queue: str, ids: Iterable[str], states: Iterable[str]
) -> list[str]:
    """Return those of the tasks that are in one of ``states``."""
    found = [await opened.task(queue, task_id) for task_id in dict.fromkeys(ids)]
    return [each.id for each in found if each is not None and each.state in states]


def _status(count: int, queue: str, ids: Sequence[str]) -> int:
    """Return the exit status: whether all tasks that were named could be changed. Report if not."""
    missing = len(set(ids)) - count
    if missing <= 0:
        return ExitStatus.OK
    print_stderr(
        f"{missing:,} of the {len(set(ids)):,} ids named no such task: see 'rxlanggraph state URL "
        f"tasks {queue}'"
    )
    return ExitStatus.SOME_FAILED


def _letter_row(letter: DeadLetter) -> tuple[str, ...]:
    error = letter.error
    if isinstance(error, dict) and {"type", "message"} <= error.keys():
        error = f"{error['type']}: {error['message']}"
    text = " ".join((error if isinstance(error, str) else json.dumps(error)).split())
    short = text if len(text) <= _ERROR_WIDTH else f"{text[: _ERROR_WIDTH - 3]}..."
    key, thread_id = letter.key or "", letter.thread_id or ""
    return (letter.id, str(letter.attempts), letter.worker, key, thread_id, short)


# -- printing --------------------------------------------------------------------------------------


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print_stdout(line)


def _print_json(values: Iterable[Any]) -> None:
    _print(map(json.dumps, values))


class _Shown(NamedTuple, Generic[_T]):
    """How one thing of a list is shown: as a row below the heads, or as JSON."""

    heads: Sequence[str]
    row: Callable[[_T], Sequence[str]]
    data: Callable[[_T], Any]


async def _list(
    found: AsyncIterator[_T], shown: _Shown[_T], limit: int | None, as_json: bool
) -> None:
    """Print things as JSON, page by page; or as a table, as far as the limit."""
    if not as_json:
        await _print_table(found, shown, limit or _SHOWN)
        return
    numbers = itertools.count(1)
    async for each in found:
        _print_json([shown.data(each)])
        if next(numbers) == limit:
            break


async def _print_table(found: AsyncIterator[_T], shown: _Shown[_T], most: int) -> None:
    rows = [shown.heads]
    async for each in found:
        if len(rows) > most:
            _print([columns(rows), "", "and more: --limit N shows N, --json all of them"])
            return
        rows.append(shown.row(each))
    _print([columns(rows)])


def _print_outcome(
    verb: tuple[str, str], count: int, what: str, queue: str, *, dry_run: bool, as_json: bool
) -> None:
    would, did = verb
    if as_json:
        _print_json([{did: count, "queue": queue, "dry_run": dry_run}])
        return
    ending = "" if count == 1 else "s"
    begun = f"would {would}" if dry_run else did
    _print([f"{begun} {count:,} {what}{ending} of {queue}"])
