"""Dropping a journal: its run, its lines and its answers are deleted."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, get_args

from rxlanggraph.cli.errors import CommandError, JournalMismatchError
from rxlanggraph.cli.journal.location import JournalLocation, parse_location, warn_of_password
from rxlanggraph.cli.journal.model import DROPPED, QUEUE, RUN, run_from
from rxlanggraph.cli.journal.retry import journal_errors
from rxlanggraph.state import State, open_state
from rxlanggraph.state.backend import TaskState
from rxlanggraph.state.open import read_version

__all__ = ["Dropped", "drop_journal"]


class Dropped(NamedTuple):
    """What was, or would be, deleted.

    Attributes:
        journal: The name of the journal, without a password.
        lines: How many lines it has.
        unanswered: How many of them have no answer.
        is_file: Whether it is in an SQLite file, which is left.
    """

    journal: str
    lines: int
    unanswered: int
    is_file: bool


def drop_journal(where: str, *, force: bool, dry_run: bool) -> Dropped:
    """Delete a journal. Blocks; no loop may run in this thread.

    First it is made one that no command continues. If the command ends in the middle, it can be
    repeated.

    Args:
        where: The path or URL of the journal.
        force: Whether to drop it although messages are in flight: their answers are lost.
        dry_run: Whether to delete nothing.

    Raises:
        CommandError: It is not a journal, or messages are in flight.
        JournalError: Its server does not answer.
    """
    location = parse_location(where)
    warn_of_password(exposes_password=location.exposes_password)
    with journal_errors(location, "drop it again"):
        return asyncio.run(_drop(location, force=force, dry_run=dry_run))


async def _drop(location: JournalLocation, *, force: bool, dry_run: bool) -> Dropped:
    version = await read_version(location.url, location.namespace)
    if version is None or version.stored is None:
        raise _not_a_journal(location)
    async with open_state(location.url, namespace=location.namespace) as state:
        run, number = await state.get(RUN)
        if run is None:
            raise _not_a_journal(location)
        if run != DROPPED:
            run_from(run)
        stats = await state.stats(QUEUE)
        if stats.claimed and not force:
            workers = ", ".join(sorted(stats.by_worker))
            raise CommandError(
                f"{stats.claimed:,} messages of the journal {location.name} are in flight, at "
                f"{workers}: end these processes first, or drop it with --force; if they have "
                "died, wait until their leases expire"
            )
        if not dry_run:
            await _delete(state, number)
    unanswered = stats.waiting + stats.delayed + stats.claimed
    lines = unanswered + stats.completed + stats.dead
    return Dropped(location.name, lines, unanswered, location.path is not None)


async def _delete(state: State, version: int) -> None:
    if not await state.compare_and_set(RUN, DROPPED, version):
        raise CommandError("the journal was changed meanwhile; drop it again")
    await state.purge(QUEUE, get_args(TaskState))
    async for key in state.iter_keys():
        if key.key != RUN:
            await state.delete(key.key)
    await state.delete(RUN)


def _not_a_journal(location: JournalLocation) -> JournalMismatchError:
    return JournalMismatchError(
        f"{location.name} is not a journal; name one that 'rxlanggraph run --journal' has begun"
    )
