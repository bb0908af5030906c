"""A run without a journal: one window of lines between a reader, a bridge and a writer.

A map; each imports only from those above it.

    limits          --rate and --halt
    model_use       --limit, --usage and --prices
    line_tracker    the lines that were read, and their outcomes
    reader          reader thread: lines -> messages, bounded
    writer          writer thread: results -> records
    run_log         what happens to the runs: failed attempts
    supervisor      main thread: signals, and events from the other threads
    progress        the progress, on standard error
    summary         the result of a job, and its summary
    job             all of them together
"""
