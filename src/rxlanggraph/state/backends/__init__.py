"""The stores of shared state: each package implements `rxlanggraph.state.backend.Backend`.

`rxlanggraph.state.open_state` imports each one when a URL needs it. None imports another. The
packages that a store needs come with an extra.

    memory               this process
    sql                  SQLite and PostgreSQL
    redis                Redis and Valkey
"""
