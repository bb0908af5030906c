"""The tables, as SQLAlchemy describes them: the same ones in every database.

Times are seconds since 1970 on the clock of the database, `now`. A row of ``rxlanggraph_entries``
without an item remembers the fencing token of a key that is gone. ``forget`` is when a row
is not needed any more (rule 10 of the contract): the next write of its kind sweeps it away.

A task that waits is *ready*, *delayed* (not due yet) or *blocked* (behind another one of its
thread): so the next task to claim is the first of an index, however many cannot be claimed.
``due`` is when a waiting task may be claimed, and when the lease of a claimed one is over.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Double,
    Identity,
    Index,
    Integer,
    MetaData,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
    func,
)
from sqlalchemy.schema import CreateIndex, CreateSequence, CreateTable, ExecutableDDLElement

from rxlanggraph.errors import InvalidArgumentError

__all__ = [
    "COUNTER",
    "FINISHED",
    "VERSION",
    "WAITING",
    "check_version",
    "definitions",
    "entries",
    "locks",
    "now",
    "queues",
    "schema",
    "tasks",
]

# Of the tables and the functions in the database: raised by every change of either.
VERSION: Final = 7

WAITING: Final = ("ready", "delayed", "blocked")
FINISHED: Final = ("completed", "dead")

metadata = MetaData()
now = func.rxlanggraph_now(type_=Double)

# PostgreSQL compares text as bytes with this collation alone, whatever that of the database is;
# SQLite does so by default, and does not know its name.
_Name = Text(collation="C").with_variant(Text(), "sqlite")
# SQLite numbers the rows of a table by itself only where the type is called INTEGER.
_Number = BigInteger().with_variant(Integer(), "sqlite")

schema = Table("rxlanggraph_schema", metadata, Column("version", Integer, nullable=False))

# Of versions and tokens (rule 3 of the contract), where the database knows sequences.
COUNTER: Final = Sequence("rxlanggraph_counter")

entries = Table(
    "rxlanggraph_entries",
    metadata,
    Column("namespace", _Name, primary_key=True),
    Column("key", _Name, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("expires", Double),
    Column("fence", BigInteger),
    Column("forget", Double),
    # Of any length: last, so that reading the other columns does not read it; and in SQLite not in
    # the tree of the keys (WITHOUT ROWID), where looking for another key would read it.
    Column("item", Text),
)
_forget = entries.c.forget.is_not(None)
Index(
    "rxlanggraph_entries_forget",
    entries.c.forget,
    postgresql_where=_forget,
    sqlite_where=_forget,
)

locks = Table(
    "rxlanggraph_locks",
    metadata,
    Column("namespace", _Name, primary_key=True),
    Column("key", _Name, primary_key=True),
    Column("owner", _Name, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires", Double, nullable=False),
    sqlite_with_rowid=False,
)
Index("rxlanggraph_locks_expires", locks.c.expires)

# Tasks name their queue by its number: an entry of an index on PostgreSQL has 2,700 bytes at most,
# and each of two names can have 2,000.
queues = Table(
    "rxlanggraph_queues",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("namespace", _Name, nullable=False),
    Column("name", _Name, nullable=False),
    UniqueConstraint("namespace", "name"),
)

tasks = Table(
    "rxlanggraph_tasks",
    metadata,
    Column("seq", _Number, Identity(), primary_key=True),  # the order of adding
    Column("queue", Integer, nullable=False),
    Column("id", _Name, nullable=False),
    Column("key", _Name),
    Column("thread", _Name),
    Column("priority", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("due", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("worker", _Name),
    Column("token", BigInteger),  # while it is current; of a completed task the one that did it
    Column("item", Text, nullable=False),
    Column("result", Text),
    Column("error", Text),
    UniqueConstraint("queue", "id"),
)
_keyed = tasks.c.key.is_not(None)
_ready = tasks.c.state == "ready"
_timed = tasks.c.state.in_(("delayed", "claimed"))
_blocked = tasks.c.state == "blocked"
_in_line = tasks.c.thread.is_not(None) & tasks.c.state.not_in(FINISHED)
_dead = tasks.c.state == "dead"
_expired = _dead & tasks.c.error.is_(None)
Index(
    "rxlanggraph_tasks_key",
    tasks.c.queue,
    tasks.c.key,
    unique=True,
    postgresql_where=_keyed,
    sqlite_where=_keyed,
)
Index(
    "rxlanggraph_tasks_ready",
    tasks.c.queue,
    tasks.c.priority.desc(),
    tasks.c.seq,
    postgresql_where=_ready,
    sqlite_where=_ready,
)
Index(
    "rxlanggraph_tasks_timed",
    tasks.c.queue,
    tasks.c.due,
    tasks.c.state,  # so that counting them reads no task
    postgresql_where=_timed,
    sqlite_where=_timed,
)
Index(
    "rxlanggraph_tasks_blocked",
    tasks.c.queue,
    tasks.c.due,
    postgresql_where=_blocked,
    sqlite_where=_blocked,
)
Index(
    "rxlanggraph_tasks_in_line",
    tasks.c.queue,
    tasks.c.thread,
    tasks.c.seq,
    postgresql_where=_in_line,
    sqlite_where=_in_line,
)
Index(
    "rxlanggraph_tasks_dead",
    tasks.c.queue,
    tasks.c.seq,
    postgresql_where=_dead,
    sqlite_where=_dead,
)
Index(
    "rxlanggraph_tasks_expired",
    tasks.c.queue,
    postgresql_where=_expired,
    sqlite_where=_expired,
)


def definitions(dialect: Dialect) -> list[str]:
    """Return the statements that make the tables, in the SQL of ``dialect``. Never blocks."""
    made: list[ExecutableDDLElement] = []
    if dialect.supports_sequences:
        made.append(CreateSequence(COUNTER))
    for table in metadata.sorted_tables:
        made.append(CreateTable(table))
        made.extend(map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name))))
    return [str(statement.compile(dialect=dialect)) for statement in made]


def check_version(version: int) -> None:
    """Refuse tables of another version than this one's.

    Raises:
        InvalidArgumentError: They are.
    """
    if version != VERSION:
        raise InvalidArgumentError(
            f"the tables rxlanggraph_* in this database are of version {version}, this release of "
            f"rxlanggraph needs version {VERSION}: use another database, or another release"
        )
