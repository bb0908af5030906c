"""The statements that are the same on every database: one each, so atomic by themselves.

SQLAlchemy compiles each once for its dialect, and is not asked again: an ``execute`` of its own
takes several times as long as the statement itself. What needs more than one statement is a
procedure of the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    Delete,
    Dialect,
    Double,
    Select,
    Text,
    Update,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from rxlanggraph.state.sql.tables import entries, locks, now, queues, tasks

__all__ = [
    "LOCK_RELEASE",
    "LOCK_RENEW",
    "READ",
    "READ_ONE",
    "TASKS_COUNT",
    "TASK_RENEW",
    "Compiled",
    "Statement",
    "compiled",
    "dead",
    "results",
]

Statement: TypeAlias = "Select[Any] | Update | Delete"


# -- compiling -------------------------------------------------------------------------------------


class Compiled(NamedTuple):
    """A statement in the SQL of one database, and its parameters in their order."""

    text: str
    parameters: tuple[str, ...]

    def ordered(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values of the parameters, in their order. Any thread; never blocks."""
        return [values[name] for name in self.parameters]


@cache
def compiled(statement: Statement, dialect: Dialect) -> Compiled:
    """Return ``statement`` in the SQL of ``dialect``. Any thread; never blocks.

    Both are remembered for ever: each is a constant of some module.
    """
    done = statement.compile(dialect=dialect)
    assert isinstance(done, SQLCompiler)
    return Compiled(done.string, tuple(done.positiontup or ()))


class _OneOf(ColumnElement[bool]):
    """Whether a column is among the names in one parameter, of which there may be thousands."""

    inherit_cache = False  # no statement with it is ever executed by SQLAlchemy

    def __init__(self, column: ColumnElement[Any], parameter: str) -> None:
        self.column = column
        self.names = bindparam(parameter, type_=ARRAY(Text).with_variant(Text(), "sqlite"))


@compiles(_OneOf)
def _in_array(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    column, names = (compiler.process(part, **options) for part in (element.column, element.names))
    # The index of keys is partial: so one that has none is out.
    return f"({column} IS NOT NULL AND {column} = ANY ({names}))"


@compiles(_OneOf, "sqlite")
def _in_json(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    column, names = (compiler.process(part, **options) for part in (element.column, element.names))
    # Here this follows from IN; said as well, it would be what the index is used for.
    return f"{column} IN (SELECT value FROM json_each({names}))"  # noqa: S608 - both are compiled


def _text(name: str) -> BindParameter[str]:
    return bindparam(name, type_=Text)


def _word(value: str) -> ColumnElement[str]:
    # In the text of the statement and no parameter: else no partial index would be used.
    return literal_column(f"'{value}'", Text)


# -- keys and locks --------------------------------------------------------------------------------

_token = bindparam("token", type_=BigInteger)
_ttl = bindparam("ttl", type_=Double)

_read = select(entries.c.key, entries.c.item, entries.c.version).where(
    entries.c.namespace == _text("namespace"),
    entries.c.item.is_not(None),
    or_(entries.c.expires.is_(None), entries.c.expires > now),
)
READ: Final = _read.where(_OneOf(entries.c.key, "names"))
# To look one up among many of one takes longer than all else of a read.
READ_ONE: Final = _read.where(entries.c.key == _text("name"))

_held = (
    locks.c.namespace == _text("namespace"),
    locks.c.key == _text("name"),
    locks.c.token == _token,
)
LOCK_RENEW: Final = (
    update(locks).where(*_held, locks.c.expires > now).values(expires=now + _ttl)
).returning(locks.c.token)
# A lease that is over is no longer held; but nobody needs the row.
LOCK_RELEASE: Final = delete(locks).where(*_held).returning(locks.c.expires > now)


# -- tasks -----------------------------------------------------------------------------------------

_queue = (
    select(queues.c.id)
    .where(queues.c.namespace == _text("namespace"), queues.c.name == _text("queue_name"))
    .scalar_subquery()
)
_clock = select(now.label("moment")).cte("clock")  # one moment for all rows
_timed_tasks = tasks.join(_clock, true())

_is_over = tasks.c.due <= _clock.c.moment
_is_used_up = tasks.c.attempts >= tasks.c.max_attempts
_is_claimed = tasks.c.state == _word("claimed")
_is_dead = or_(tasks.c.state == _word("dead"), _is_claimed & _is_over & _is_used_up)

# What has been swept back to ready is claimed again, as the same attempt.
TASK_RENEW: Final = (
    update(tasks)
    .where(
        tasks.c.queue == _queue,
        tasks.c.id == _text("task_id"),
        tasks.c.token == _token,
        or_(
            tasks.c.state == _word("ready"),
            _is_claimed & ((tasks.c.due > now) | ~_is_used_up),
        ),
    )
    .values(state=_word("claimed"), due=now + _ttl)
    .returning(tasks.c.seq)
)

_dead = (
    select(
        tasks.c.id,
        tasks.c.item,
        tasks.c.key,
        tasks.c.thread,
        tasks.c.attempts,
        tasks.c.worker,
        case((tasks.c.state == _word("dead"), tasks.c.error)),
    )
    .select_from(_timed_tasks)
    .where(tasks.c.queue == _queue, _is_dead)
    .order_by(tasks.c.seq)
)

_kind = case(
    (tasks.c.state == _word("completed"), _word("completed")),
    (_is_dead, _word("dead")),
    (_is_claimed & ~_is_over, _word("claimed")),
    (~_is_over, _word("delayed")),
    else_=_word("waiting"),
)
TASKS_COUNT: Final = (
    select(_kind, case((_kind == _word("claimed"), tasks.c.worker)), func.count())
    .select_from(_timed_tasks)
    .where(tasks.c.queue == _queue)
    .group_by(literal_column("1"), literal_column("2"))
)


@cache
def dead(*, named: bool) -> Select[Any]:
    """Return the statement for all dead tasks, or for those of named keys. Never blocks."""
    return _dead.where(_OneOf(tasks.c.key, "names")) if named else _dead


@cache
def results(by: Literal["id", "key"], *, named: bool) -> Select[Any]:
    """Return the statement for all results, or for those of named tasks. Never blocks."""
    name = tasks.c[by]
    statement = select(name, tasks.c.result).where(
        tasks.c.queue == _queue, tasks.c.state == _word("completed")
    )
    return statement.where(_OneOf(name, "names") if named else name.is_not(None))
