"""What an agent puts out: one queue, whose consumers are served in turn.

A map; each imports only from those above it.

    fairness             whose turn it is among consumers that request again and again
    reservations         which getter an item is for, and which putters wait for room
    stream               ``async for`` over the items of one run
    queue                the queue itself
"""
