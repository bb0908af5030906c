"""What answers for an agent: a chat model, another Runnable, an async function or a graph.

A map; each imports only from those above it.

    contract             the question, the answer, and what no answer may have
    models               chat models, other Runnables, and functions: no memory of their own
    graph                graphs, and the threads of their checkpointers
    choice               which of them an agent has
"""
