"""``rxlanggraph top``: the data of the live page, on a terminal.

A map; each imports only from those above it.

    watch    the source: snapshots, losses of the connection, the end; a journal, polled
    remote   a live page, over HTTP
    views    a snapshot as rows of text
    plain    --once: a snapshot as plain text
    dialogs  dialogs on top of the screen
    screen   the screen
    command  the command
"""

from rxlanggraph.cli.top.command import top

__all__ = ["top"]
