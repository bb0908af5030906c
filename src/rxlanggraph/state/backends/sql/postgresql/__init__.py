"""Shared state in PostgreSQL, through psycopg. The procedures are in procedures.sql.

A map; each imports only from those above it.

    pool                 pooled connections, checked before each use; statements
    arrivals             notifications of new tasks, to wait without polling
    batcher              micro-batching: calls that are sent together
    fast_path            one statement instead of a procedure, for the common cases
    database             statements and procedures, and the errors of the server
"""
