"""The tables: the same ones in every database.

Times are seconds since 1970 on the clock of the database, ``rxlanggraph_now()``. A row of
``rxlanggraph_entries`` without an item stores the fencing token of a key that is gone. ``forget``
is when a row is no longer needed (rule 10 of the contract): a later write deletes it.

A waiting task is *ready*, *delayed* (not due yet) or *blocked* (behind another one of its thread):
so the next task to claim is the first entry of an index, however many tasks cannot be claimed.
``due`` is when a waiting task may be claimed, and when the lease of a claimed one ends. ``added``,
``claimed`` (the last time) and ``ended`` are NULL if that has not happened, or happened before the
tables had these columns: since ``rxlanggraph_schema.since``, which is NULL if they always had them.

An upgrade. A change of the tables, or of the functions in the database, increments `VERSION`, and
adds a `Migration`: the statements that make tables of the new version from those of the previous
one. `open_state` runs those that are due, in one transaction and under a lock, so any number of
processes may start at once; a program of an older release refuses the result. Such a program may
still have the database open, and continues. Therefore a migration only adds: what a statement of
the previous release names stays, and what it leaves out may be NULL. It should not read or write
every row (rule 9 of the contract), except for a new index, which takes a second or two for a
million tasks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rxlanggraph.state.backend import SchemaVersion, other_version

__all__ = ["VERSION", "Migration", "definitions", "migrations_from"]

# Of the tables and the functions in the database; incremented by every change of either.
VERSION: Final = 11

# Differences between the databases are in braces, see `definitions`.
#
# Items may be long. They are in the last column, so that reading the other columns does not read
# them; and in SQLite not in the B-tree of the keys (WITHOUT ROWID), where the search for another
# key would read them.
#
# Tasks refer to their queue by its number: two names would exceed the size of an index entry in
# PostgreSQL. ``seq`` is the order of adding. ``token`` is set while it is current; in a completed
# task it is the token that completed it. The index of due dates has the state too, so that tasks
# are counted without being read. That of claimed tasks, which may be few beside many delayed ones,
# is read in the order of tokens: otherwise PostgreSQL, with a plan that it made for a small table,
# might read the index of due dates instead.
_TABLES: Final = """
CREATE TABLE rxlanggraph_schema (version integer NOT NULL, since double precision);

CREATE TABLE rxlanggraph_entries (
    namespace {name} NOT NULL,
    key {name} NOT NULL,
    version bigint NOT NULL,
    expires double precision,
    fence bigint,
    forget double precision,
    item text,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX rxlanggraph_entries_forget ON rxlanggraph_entries (forget) WHERE forget IS NOT NULL;

CREATE TABLE rxlanggraph_locks (
    namespace {name} NOT NULL,
    key {name} NOT NULL,
    owner {name} NOT NULL,
    token bigint NOT NULL,
    expires double precision NOT NULL,
    PRIMARY KEY (namespace, key)
){clustered};
CREATE INDEX rxlanggraph_locks_expires ON rxlanggraph_locks (expires);

CREATE TABLE rxlanggraph_queues (
    id integer PRIMARY KEY,
    namespace {name} NOT NULL,
    name {name} NOT NULL,
    UNIQUE (namespace, name)
);

CREATE TABLE rxlanggraph_tasks (
    seq {counted} PRIMARY KEY,
    queue integer NOT NULL,
    id {name} NOT NULL,
    key {name},
    thread {name},
    priority integer NOT NULL,
    state text NOT NULL,
    due double precision NOT NULL,
    attempts integer NOT NULL,
    max_attempts integer NOT NULL,
    worker {name},
    token bigint,
    added double precision,
    claimed double precision,
    ended double precision,
    item text NOT NULL,
    result text,
    error text,
    UNIQUE (queue, id)
);
CREATE UNIQUE INDEX rxlanggraph_tasks_key ON rxlanggraph_tasks (queue, key)
    WHERE key IS NOT NULL;
CREATE INDEX rxlanggraph_tasks_ready ON rxlanggraph_tasks (queue, priority DESC, seq)
    WHERE state = 'ready';
CREATE INDEX rxlanggraph_tasks_timed ON rxlanggraph_tasks (queue, due, state)
    WHERE state IN ('delayed', 'claimed');
CREATE INDEX rxlanggraph_tasks_claimed ON rxlanggraph_tasks (queue, token)
    WHERE state = 'claimed';
CREATE INDEX rxlanggraph_tasks_blocked ON rxlanggraph_tasks (queue, due)
    WHERE state = 'blocked';
CREATE INDEX rxlanggraph_tasks_in_line ON rxlanggraph_tasks (queue, thread, seq)
    WHERE thread IS NOT NULL AND state NOT IN ('completed', 'dead');
CREATE INDEX rxlanggraph_tasks_dead ON rxlanggraph_tasks (queue, seq)
    WHERE state = 'dead';
CREATE INDEX rxlanggraph_tasks_expired ON rxlanggraph_tasks (queue)
    WHERE state = 'dead' AND error IS NULL
"""


class Migration(NamedTuple):
    """The change from the previous version of the tables.

    Attributes:
        version: The version that it leads to.
        statements: Its statements. The procedures of PostgreSQL are replaced after the last
            migration, by those of this release.
    """

    version: int
    statements: tuple[str, ...]


_MIGRATIONS: Final = (
    Migration(
        8,  # tasks have times
        (
            "ALTER TABLE rxlanggraph_schema ADD COLUMN since double precision",
            "UPDATE rxlanggraph_schema SET since = rxlanggraph_now()",
            "ALTER TABLE rxlanggraph_tasks ADD COLUMN added double precision",
            "ALTER TABLE rxlanggraph_tasks ADD COLUMN claimed double precision",
            "ALTER TABLE rxlanggraph_tasks ADD COLUMN ended double precision",
        ),
    ),
    Migration(9, ()),  # procedures that claim and complete many tasks
    Migration(10, ()),  # procedures with a limit on claimed tasks
    Migration(
        11,  # claimed tasks are counted by an index of their own
        (
            """CREATE INDEX rxlanggraph_tasks_claimed ON rxlanggraph_tasks (queue, token)
                WHERE state = 'claimed'""",
        ),
    ),
)


def definitions(*, name: str, counted: str, clustered: str) -> list[str]:
    """Return the statements that create the tables. Any thread; never blocks.

    Args:
        name: The type of text that is compared as bytes.
        counted: The type of a column with automatically incremented numbers.
        clustered: The clause that stores a table in the index of its primary key.
    """
    return _TABLES.format(name=name, counted=counted, clustered=clustered).split(";")


def migrations_from(version: int) -> list[Migration]:
    """Return the migrations that are due, in order; none if the tables are up to date.

    Any thread; never blocks.

    Args:
        version: The version of the tables.

    Raises:
        InvalidArgumentError: There are none from ``version`` to that of this release.
    """
    due = [migration for migration in _MIGRATIONS if migration.version > version]
    if version > VERSION or version < _MIGRATIONS[0].version - 1:
        raise other_version(
            "the database, in its tables rxlanggraph_*,",
            SchemaVersion(version, VERSION),
            "database",
        )
    return due
