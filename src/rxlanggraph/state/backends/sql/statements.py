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
    CompoundSelect,
    Delete,
    Dialect,
    Double,
    Integer,
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
    union_all,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from rxlanggraph.state.backends.sql.schema import entries, locks, now, queues, tasks

__all__ = [
    "DEAD",
    "DEAD_PAGE",
    "LOCK_RELEASE",
    "LOCK_RENEW",
    "READ",
    "READ_ONE",
    "RESULTS_PAGE",
    "TASKS_COUNT",
    "TASK_RENEW",
    "Compiled",
    "Statement",
    "compiled",
    "results",
]

Statement: TypeAlias = "Select[Any] | CompoundSelect[Any] | Update | Delete"


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
# A lease that is over is no longer held; but the row is not needed.
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

# As a whole: each is what a partial index is made for.
_is_timed = tasks.c.state.in_((_word("delayed"), _word("claimed")))
_after = bindparam("after", type_=BigInteger)
_most = bindparam("most", type_=Integer)
# Said in full: else SQLAlchemy has a parameter for it in SQLite.
_from_first: ColumnElement[int] = literal_column("0", Integer)

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
    .order_by(tasks.c.seq)
)
DEAD: Final = _dead.where(tasks.c.queue == _queue, _is_dead, _OneOf(tasks.c.key, "names"))

# The first of those that are known to be dead, and all that are dead unnoticed.
_first_dead = (
    select(tasks.c.seq)
    .where(tasks.c.queue == _queue, tasks.c.state == _word("dead"), tasks.c.seq > _after)
    .order_by(tasks.c.seq)
    .limit(_most)
    .offset(_from_first)
    .subquery()
)
_unnoticed = (
    select(tasks.c.seq)
    .select_from(_timed_tasks)
    .where(tasks.c.queue == _queue, _is_timed, _is_over, _is_claimed & _is_used_up)
    .where(tasks.c.seq > _after)
)
DEAD_PAGE: Final = (
    _dead.add_columns(tasks.c.seq)
    .where(tasks.c.seq.in_(union_all(select(_first_dead.c.seq), _unnoticed)))
    .limit(_most)
    .offset(_from_first)
)

# Of so many tasks those that are complete: so that no page takes longer than others.
RESULTS_PAGE: Final = (
    select(tasks.c.id, case((tasks.c.state == _word("completed"), tasks.c.result)))
    .where(tasks.c.queue == _queue, tasks.c.id > _text("after"))
    .order_by(tasks.c.id)
    .limit(_most)
    .offset(_from_first)
)


def _count(kind: str, *conditions: ColumnElement[bool]) -> Select[str, str, int]:
    return (
        select(_word(kind), _word(""), func.count())
        .select_from(_timed_tasks)
        .where(tasks.c.queue == _queue, *conditions)
    )


# Each part counts the entries of one index. The claimed ones alone are looked at, which are few.
_is_waiting_claim = _is_claimed & _is_over & ~_is_used_up
_is_dead_claim = _is_claimed & _is_over & _is_used_up
TASKS_COUNT: Final = union_all(
    _count("all"),
    _count("waiting", tasks.c.state == _word("ready")),
    _count("waiting", tasks.c.state == _word("blocked"), _is_over),
    _count("delayed", tasks.c.state == _word("blocked"), ~_is_over),
    _count("waiting", _is_timed, tasks.c.state == _word("delayed"), _is_over),
    _count("delayed", _is_timed, tasks.c.state == _word("delayed"), ~_is_over),
    _count("waiting", _is_timed, _is_waiting_claim),
    _count("dead", _is_timed, _is_dead_claim),
    _count("expired", _is_timed, _is_dead_claim),
    _count("dead", tasks.c.state == _word("dead")),
    _count("expired", tasks.c.state == _word("dead"), tasks.c.error.is_(None)),
    select(_word("claimed"), tasks.c.worker, func.count())
    .select_from(_timed_tasks)
    .where(tasks.c.queue == _queue, _is_timed, _is_claimed, ~_is_over)
    .group_by(tasks.c.worker),
)


@cache
def results(by: Literal["id", "key"]) -> Select[Any]:
    """Return the statement for the results of named tasks. Never blocks."""
    name = tasks.c[by]
    return select(name, tasks.c.result).where(
        tasks.c.queue == _queue, tasks.c.state == _word("completed"), _OneOf(name, "names")
    )
