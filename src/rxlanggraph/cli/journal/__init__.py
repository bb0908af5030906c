"""A run that survives being killed: each step is recorded in a journal.

A map; each imports only from those above it.

    model            what a journal contains, and the run that it belongs to
    location         where a journal is: a file or a server, and its password
    retry            an open journal, and retries while it does not answer
    output_file      outputs: locked, read and truncated
    reader           reader thread: the input -> tasks of the journal
    progress         the progress of the run, in all of its processes
    workers          tasks of the journal -> answers in it
    writer           writer thread: answers of the journal -> records
    job              all of them together, in one process
    run              from the command's options to a job
    status_report    the status of a run, read from outside
    live_source      the same for the live page, again and again
    dropping         deleting a journal
"""
