"""What the bridge costs, measured beside its peers in the same run.

Read in this order:

    harness.py       paired ratios, the graph under test, loops in threads
    peers.py         the other ways of doing the same work, behind one interface
    servers.py       the servers of shared state, for the length of a block
    handoff.py       an empty coroutine from threads to the loop and back
    registry.py      a future's whole life in the registry; its snapshot
    bridge.py        streams of messages through a graph; backlogs
    stream.py        the chunks of a run
    hooks.py         a bridge with hooks beside one without
    live.py          a bridge with a live page beside one without
    lanes.py         messages on threads: cost and fairness of lanes, and lanes that are shared
    checkpoints.py   runs of which one checkpoint is kept
    cleanup.py       creating runs, and cancelling all of them
    worker_graphs.py the graphs of the next two
    executors.py     worker processes, over one process and over bare actors of Ray
    graph_loops.py   several loops over one, without the GIL
    agent.py         messages into an agent's memory; changes of its state
    agent_output.py  what an agent puts out: throughput, and shares of its consumers
    memory.py        bytes per run in flight; memory after many messages
    state.py         safe_update by many at once, in memory and on each backend
    state_work.py    what the next three measure of each backend of shared state
    state_memory.py  counters and claims in memory, over the same under a lock
    state_redis.py   counters, claims and updates in Redis or Valkey, over the bare commands
    state_sql.py     the same in SQLite and PostgreSQL, over bare statements
    arrivals.py      waking an idle worker of another process, over polling
    journal.py       the command with a journal, over the command without
    ratios.py        every ratio with its target, in one table

Each module holds both the measurement and its ASV classes, so that the table that a person
reads and the history that ASV keeps come from the same lines. `docs/benchmarks.md` explains
how to run and how to read them.

What ASV tracks is a cost: `nox -s bench-compare` takes more of it for slower.
"""
