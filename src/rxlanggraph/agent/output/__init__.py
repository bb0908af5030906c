"""The output of an agent: one queue, whose consumers are served in turn.

A map; each imports only from those above it.

    fairness             round robin among the consumers
    reservations         the getter that each item is for, and the putters that wait for room
    stream               ``async for`` over a queue
    queue                the queue itself
    run_stream           the items of one run, for its caller alone
"""
