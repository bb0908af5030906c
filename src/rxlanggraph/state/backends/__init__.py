"""The stores of shared state: each package implements `rxlanggraph.state.backend.Backend`.

Each is imported by `rxlanggraph.state.open_state` when a URL asks for it, and none by another; what
it needs beside the standard library comes with an extra.

    memory               this process
    sql                  SQLite and PostgreSQL
    redis                Redis and Valkey
"""
