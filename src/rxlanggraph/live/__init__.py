"""The live page: what an operator looks at while runs are in flight. The extra ``live``.

`RxPyLangGraphBridge.live_app` makes the page of a bridge; ``rxlanggraph run --live`` and
``rxlanggraph live`` serve it. A terminal shows the same data. Nothing here imports the bridge,
which passes in what is to be looked at.

A map; each imports only from those above it.

    schema         the data of the page, as dictionaries
    source         what has such data, and what may be done to runs
    access         who may see it: a token, and the names of the host
    questions      interrupts that wait for an answer
    history        how many ended in each second
    board          hooks: what has ended, and how
    bridge_source  the data of one bridge
    feed           one producer of snapshots for all clients
    app            the page and its data over HTTP
    server         that, served in a thread of its own
"""
