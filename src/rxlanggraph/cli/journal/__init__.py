"""A run that survives being killed: each step is recorded in a journal.

A map; each imports only from those above it.

    model            what a journal contains, and the run that it belongs to
    location         where a journal is: a file or a server, and its password
    retry            an open journal, and retries while it does not answer
    output_file      outputs: locked, read and truncated
    reader           reader thread: the input -> tasks of the journal
    progress         the progress of the run, in all of its processes
    line_runs        claimed lines -> results of their runs
    answers          results -> answers in the journal
    workers          tasks of the journal -> answers in it: both of them, and the claims
    results          reads answers from the journal
    repair           what of the outputs stays when a writer begins
    writer           writer thread: answers of the journal -> records
    job              all of them together, in one process
    run              from the command's options to a job
    status_report    the status of a run, read from outside
    live_source      the same for the live page, again and again
    dropping         deleting a journal
"""
