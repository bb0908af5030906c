"""What a graph is passed and what it keeps: nothing here knows a run of the bridge.

A map; each imports only from those above it.

    configs              LangGraph's config of a run
    call_arguments       LangGraph's other arguments of a call, and functions of the message
    tracebacks           a failed run's traceback, without the references it need not keep
    interrupts           questions of graphs, and which message may answer them
    attempts             a retried run continues from its checkpoint
    pending              the questions that wait for an answer
    savers               which saver it is, and how its tables are reached
    retention            how many checkpoints a thread keeps
    expiry               threads that were not used for long
    adapters             what a run can execute
    rollback             a thread as it was before a run
    drain_control        how LangGraph is asked to stop a run between two supersteps
"""
