"""What the command reads and writes: lines of an input, records of an output.

A map; each imports only from those above it.

    lines       numbered lines of a binary stream, whatever they hold
    readers     JSON Lines and CSV, one message at a time
    records     one record, one line of JSON
    sinks       where records go: each line whole or not at all
"""
