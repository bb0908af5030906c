"""Shared state in an SQLite file, through `sqlite3`.

A map; each imports only from those above it.

    file                 which file a URL means, and a look at it that changes nothing
    session              transactions, and procedures inside the thread that has the file
    thread               the thread that has the file
    numbers              the counter of versions and tokens
    keys                 procedures for values and locks
    queues               procedures for queues as a whole
    claims               procedures for one claim
    database             statements and procedures, and what the errors of the file mean
"""
