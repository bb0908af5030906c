"""The bridge: one message, from `on_next` to the observer, top to bottom.

A map; each imports only from those above it.

    time_limits          how long a run may take, and each part of it
    graphs               what LangGraph is passed, and what it keeps: nothing here knows a run
    hook_calls           how hooks are called, and the set of them at one moment
    deadlocks            which run waits for which; cycles are refused
    task_waits           whether a task still waits for what its run began to wait for
    run_options          what all runs of a call have in common
    run                  one message on its way through one graph, and its future
    run_info             what a run is doing, for snapshots
    reports              telling the hooks what happens to runs
    callbacks            LangChain's callbacks of a run; those that report nodes
    pacing               active nodes wait until the chunks of their run are taken
    chunks               a run that is executed as a stream
    draining             which graphs can stop between supersteps, and where they continue
    resending            what was lost with a worker process is sent again
    chunk_window         the latest chunks of a run, for readers that take them one by one
    overflow             which run gives way when there is no room
    run_registry         the runs in flight, and the sweep of a cleanup
    admission            max_pending: how many may be admitted and not started
    fenced_saver         a saver that refuses runs that have lost the lease of their thread
    lanes                threads that several processes share
    inbox                any thread -> the loop
    scheduler            thread, group, slot: which run may start
    multitasking         what a message does if its thread has a run already
    run_threads          the worker threads of sync code
    loops                the loop: owned, or adopted
    exits                the interpreter's exit: all open bridges end together
    listeners            the hooks of a bridge, and the watch over its loop
    graph_loops          further loops, on which graphs are called
    remote               what accompanies the calls of a run to its worker process
    execution            a run from its first step to its end: attempts, limits of time
    dispatcher           on the loop: a run from the inbox to its end
    engine               in any thread: a run on its way to the inbox; the end of the loop
    shutdown             cancelling, draining, and the report
    operators            on_next in, on_next out
    watched              what a bridge offers to what looks at it, such as the live page
    bridge               the public class
    internal             what other packages of rxlanggraph do with a bridge, and users cannot
"""
