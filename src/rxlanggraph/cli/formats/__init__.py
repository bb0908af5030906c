"""The command's formats: lines of an input, records of an output.

A map; each imports only from those above it.

    readers     numbered lines of JSON Lines and CSV, one message at a time
    failures    the record of an exception
    records     one record, one line of JSON
    sinks       outputs for records: each line is written as a whole or not at all
"""
