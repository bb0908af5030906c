"""A run without a journal: one window of lines between a reader, a bridge and a writer.

A map; each imports only from those above it.

    limits          --rate and --halt
    line_tracker    every line that was read, and its outcome
    reader          reader thread: lines -> messages, bounded
    writer          writer thread: results -> records
    supervisor      main thread: signals, and what the other threads report
    progress        progress on standard error
    summary         the summary of the run
    job             all of them together
"""
