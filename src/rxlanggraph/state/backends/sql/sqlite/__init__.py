"""Shared state in an SQLite file, through `sqlite3`.

A map; each imports only from those above it.

    session              transactions and procedures, in the thread that owns the file
    file                 the file of a URL, and reading it without changing anything
    thread               the thread that owns the file
    numbers              the counter of versions and tokens
    keys                 procedures for values and locks
    queues               procedures for queues as a whole
    claims               procedures for one claim
    database             statements and procedures, and the errors of SQLite
"""
