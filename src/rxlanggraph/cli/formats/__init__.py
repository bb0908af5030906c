"""The command's formats: lines of an input, records of an output.

A map; each imports only from those above it.

    lines       numbered lines of a binary stream, valid or not
    readers     JSON Lines and CSV, one message at a time
    records     one record, one line of JSON
    sinks       outputs for records: each line is written as a whole or not at all
"""
