"""The live page: shows an operator the runs in flight. Needs the extra ``live``.

`RxPyLangGraphBridge.live_app` makes the page of a bridge; ``rxlanggraph run --live`` and
``rxlanggraph live`` serve it. A terminal shows the same data. Nothing here imports the bridge,
which passes in a view of itself (`rxlanggraph.live.source.Watched`).

A map; each imports only from those above it.

    schema         the data of the page, as dictionaries
    source         where the data comes from, and what may be done to runs
    access         who may see the page: a token, and the names of the host
    questions      interrupts that wait for an answer
    history        how many ended in each second
    board          hooks that keep the runs that ended lately
    bridge_source  the data of one bridge
    feed           one producer of snapshots for all clients
    http           the imports of Starlette and sse-starlette
    app            the page and its data over HTTP
    server         serves the page in a thread of its own
"""
