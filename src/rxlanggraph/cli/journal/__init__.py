"""A run that survives being killed: each step of it is kept in a journal.

A map; each imports only from those above it.

    model            what a journal keeps, and whose run it is
    location         where a journal is: a file, a server, a password
    retry            an open journal, and one that does not answer for a while
    output_file      outputs: locked, checked and truncated
    reader           reader thread: the input -> tasks of the journal
    progress         how far the run is, in all of its processes
    workers          tasks of the journal -> answers in it
    writer           writer thread: answers of the journal -> records
    job              all of them together, in one process
    run              from the command's options to a job
    status_report    the status of a run, read from outside
"""
