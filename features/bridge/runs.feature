Feature: A bridge runs messages through graphs, and counts each run until it has really ended

  Scenario Outline: <Kind> answers its message
    Given an open bridge on its own loop
    When a message with an id, a thread and metadata goes to <kind>
    Then the result is ok, answers that message, and carries its thread and metadata

    Examples:
      | Kind                                 | kind                                 |
      | An async function                    | an async function                    |
      | A sync function                      | a sync function                      |
      | A graph with an async node           | a graph with an async node           |
      | A graph with a sync node             | a graph with a sync node             |
      | A RunnableLambda of an async function | a RunnableLambda of an async function |
      | A RunnableLambda of a sync function  | a RunnableLambda of a sync function  |
      | A sequence of a Runnable and a graph | a sequence of a Runnable and a graph |
      | A lambda that returns a coroutine    | a lambda that returns a coroutine    |
      | A callable object                    | a callable object                    |
      | An async callable object             | an async callable object             |
      | A partial of an async function       | a partial of an async function       |
      | A partial of a sync function         | a partial of a sync function         |

  Scenario Outline: <What> is refused before it is tracked, with the remedy
    Given an open bridge on its own loop
    When the code under test calls "<call>"
    Then <error> is raised, which says "<words>"
    And nothing was ever submitted to the bridge

    Examples:
      | What                         | call                                                        | error                | words                              |
      | A graph never compiled       | bridge.create_future_task(uncompiled, 1)                    | InvalidTypeError     | is not compiled; pass graph.compile() |
      | What cannot be called        | bridge.create_future_task(42, 1)                            | InvalidTypeError     | 42 cannot run messages; pass a compiled |
      | No graph at all              | bridge.create_future_task(None, 1)                          | InvalidTypeError     | None cannot run messages           |
      | A coroutine already made     | bridge.create_future_task(closed_coroutine(), 1)            | InvalidTypeError     | cannot run messages                |
      | An async generator function  | bridge.create_future_task(generated, 1)                     | InvalidTypeError     | would be emitted unread; return one value |
      | A thread_id that is a number | bridge.create_future_task(print, 1, thread_id=7)            | InvalidTypeError     | convert it with str()              |
      | A timeout of nothing         | bridge.create_future_task(print, 1, timeout=0)              | InvalidArgumentError | timeout must be a number of seconds above 0 |
      | A timeout in words           | bridge.create_future_task(print, 1, timeout='1')            | InvalidArgumentError | or None for no limit, not '1'      |
      | A timeout that is not a number | bridge.create_future_task(print, 1, timeout=nan)            | InvalidArgumentError | timeout must be a number of seconds above 0 |
      | A negative number of retries | bridge.create_future_task(print, 1, retry=-1)               | InvalidArgumentError | tenacity.AsyncRetrying, not -1     |
      | A sync Retrying              | bridge.create_future_task(print, 1, retry=Retrying())       | InvalidArgumentError | tenacity.AsyncRetrying             |
      | An unknown error policy      | bridge.create_future_task(print, 1, errors='skip')          | InvalidArgumentError | 'raise' or 'emit', not 'skip'      |
      | An operator's error policy   | bridge.invoke(print, errors='ignore')                       | InvalidArgumentError | 'raise', 'emit' or 'skip'          |
      | An operator's bound          | bridge.invoke(print, max_concurrency=0)                     | InvalidArgumentError | a whole number from 1, not 0       |
      | An operator's graph          | bridge.invoke(uncompiled)                                   | InvalidTypeError     | is not compiled                    |
      | An unknown strategy          | bridge.invoke(print, multitask_strategy='switch')           | InvalidArgumentError | or 'rollback', not 'switch'        |
      | A message's strategy         | bridge.create_future_task(print, 1, multitask_strategy=1)   | InvalidArgumentError | or 'rollback', not 1               |
      | An unhashable strategy       | bridge.invoke(print, multitask_strategy=[])                 | InvalidArgumentError | must be 'enqueue',                 |

  Scenario: An exception of a graph is raised unchanged
    Given an open bridge on its own loop
    When a message goes to a failing graph
    Then the future raises ValueError, "no answer to 0"

  Scenario: With errors="emit" an exception of a graph is the error of a result
    Given an open bridge on its own loop
    When a message goes to a failing graph with errors="emit"
    Then the future has a result with the status error, and ValueError "no answer to 0"

  Scenario Outline: A <exception> raised by <kind> ends its run and nothing else
    Given an open bridge on its own loop
    When a run of <kind> raises <exception>
    Then the future raises <raised>
    And the bridge answers the next message

    Examples:
      | exception         | kind              | raised                       |
      | SystemExit        | an async function | SystemExit, ""               |
      | SystemExit        | a sync function   | SystemExit, ""               |
      | KeyboardInterrupt | an async function | KeyboardInterrupt, ""        |
      | KeyboardInterrupt | a sync function   | KeyboardInterrupt, ""        |
      | StopIteration     | an async function | RuntimeError, "StopIteration" |
      | StopIteration     | a sync function   | RuntimeError, "StopIteration" |
      | StopAsyncIteration | an async function | StopAsyncIteration, ""       |
      | CancelledError    | an async function | CancelledError, ""           |
      | CancelledError    | a sync function   | CancelledError, ""           |

  Scenario Outline: A GeneratorExit raised by <kind> ends its run too
    Given an open bridge on its own loop
    When a run of <kind> raises GeneratorExit
    Then the future is done within 2 s

    Examples:
      | kind              |
      | an async function |
      | a sync function   |

  Scenario Outline: A timeout ends a run of <kind>, and its error names the message and the graph
    Given an open bridge on its own loop
    When a message goes to <kind> with timeout=0.02
    Then the future raises RunTimeoutError, "did not end within 0.02 s"
    And the error names the message and the graph

    Examples:
      | kind                             |
      | a waiting async function         |
      | a waiting graph                  |
      | a blocking sync function         |
      | a graph with a blocking sync node |
      | a graph that swallows cancelling |

  Scenario: A bridge's own timeout holds for every run that has none, also in its operators
    Given an open bridge on its own loop with timeout=0.02
    When a message goes to a waiting graph with errors="emit"
    Then the future has a result with the status timed_out, and RunTimeoutError "within 0.02 s"
    When a stream of 1 message goes to a waiting graph
    Then the stream fails with RunTimeoutError

  Scenario Outline: No more than max_concurrency runs of <kind> are on at once
    Given an open bridge on <home> loop with max_concurrency=3
    When 3 messages go to <waiting>, and 17 to <kind>
    Then no more than 3 are ever on, and all end once the first 3 may

    Examples:
      | home       | waiting                           | kind                       |
      | its own    | a waiting async function          | an async function          |
      | its own    | a blocking sync function          | a sync function            |
      | its own    | a graph with a blocking sync node | a graph with a sync node   |
      | an adopted | a graph with a blocking sync node | a graph with a sync node   |

  Scenario: Queued runs that end in their first step do not starve the loop
    Given an open bridge on its own loop with max_concurrency=1
    When 200 messages that are answered in the first step wait behind a run, and that ends
    Then every future has a result
    And they were answered in several turns of the loop

  Scenario Outline: After <end>, <kind> holds its slot until it has really ended
    Given an open bridge on <home> loop with max_concurrency=1
    When a message goes to <kind> and is ended by <end> while it runs
    Then its future is done, and the registry still has it
    When a message goes to an async function
    Then that one has not begun while the gate is shut, and answers once it is open

    Examples:
      | end        | kind                              | home       |
      | timeout    | a blocking sync function          | its own    |
      | timeout    | a graph with a blocking sync node | its own    |
      | timeout    | a graph with a blocking sync node | an adopted |
      | timeout    | a graph that swallows cancelling  | its own    |
      | cancelling | a blocking sync function          | its own    |
      | cancelling | a blocking sync function          | an adopted |
      | cancelling | a graph with a blocking sync node | its own    |
      | cancelling | a graph that swallows cancelling  | an adopted |

  Scenario Outline: 24 runs of <kind> are really on at once, on <home> loop
    Given an open bridge on <home> loop
    Then 24 runs of <kind> meet at a barrier for 24

    Examples:
      | kind                     | home       |
      | a sync function          | its own    |
      | a sync function          | an adopted |
      | a graph with a sync node | its own    |
      | a graph with a sync node | an adopted |

  Scenario: Without a bridge, the loop's default executor keeps 33 sync nodes apart
    Then 33 plain "ainvoke" of a graph with a sync node break a barrier for 33

  Scenario Outline: Runs begin in the order of their messages, whenever one before them ends: <home>
    Given an open bridge on <home> loop with max_concurrency=2
    When a run submits two more, and ends 0 to 9 turns of the loop later
    Then the first of the two has always begun before the second

    Examples:
      | home       |
      | its own    |
      | an adopted |

  Scenario: A run cancelled before its turn never begins
    Given an open bridge on its own loop with max_concurrency=1
    When a message goes to a waiting graph
    And a second message waits behind it and is cancelled
    Then the second never begins, and leaves the registry once the loop has seen it

  Scenario: A message that is cancelled while it waits for its slot does not keep its thread
    Given an open bridge on its own loop with max_concurrency=1
    When a message goes to a waiting graph
    And one on a thread waits for its slot, with another one of that thread behind it, and is cancelled
    Then the one behind it is answered once the gate opens

  Scenario: A stream's bound holds where a message that was cancelled waits between others
    Given an open bridge on its own loop
    When in a stream with max_concurrency=1 a message waits behind a run, and another one of its thread behind it
    And that message is cancelled, one on another thread follows, and the gate opens
    Then the stream has completed, and never had more than 1 run on

  Scenario: A run that was discarded from the registry resolves its future all the same
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And its future is discarded from the registry, and the gate opens
    Then every future has a result

  Scenario Outline: A run is tried again with retry=<retry>, until it succeeds
    Given an open bridge on its own loop
    When a run that fails 2 times and then succeeds is sent with retry=<retry>
    Then it was tried 3 times
    And every future has a result

    Examples:
      | retry                                                   |
      | 2                                                       |
      | 5                                                       |
      | AsyncRetrying(stop=stop_after_attempt(3))               |
      | AsyncRetrying(retry=retry_if_exception_type(ValueError)) |
      | of_tenacity_9_1()                                       |

  Scenario Outline: With retry=<retry>, the last error of a run that always fails arrives
    Given an open bridge on its own loop
    When a run that fails 9 times and then succeeds is sent with retry=<retry>
    Then it was tried <times> times
    And the future raises <error>

    Examples:
      | retry                                                   | times | error                       |
      | 0                                                       | 1     | ValueError, "attempt 1"     |
      | 1                                                       | 2     | ValueError, "attempt 2"     |
      | AsyncRetrying(stop=stop_after_attempt(3), reraise=True) | 3     | ValueError, "attempt 3"     |
      | AsyncRetrying(stop=stop_after_attempt(2))               | 2     | RetryError, "ValueError"    |
      | AsyncRetrying(retry=retry_if_exception_type(KeyError))  | 1     | ValueError, "attempt 1"     |

  Scenario: One AsyncRetrying serves many runs at once, each with attempts of its own
    Given an open bridge on its own loop
    When 50 runs that each fail 2 times are sent with one AsyncRetrying of 3 attempts
    Then every future has a result

  Scenario: The next attempt waits for the thread that the timed-out one left behind
    Given an open bridge on its own loop
    When a node blocks a thread past its timeout and is tried again
    Then the second attempt begins after the first has ended, and its result arrives

  Scenario: A cancelled run is not tried again
    Given an open bridge on its own loop
    When a message goes to a waiting graph with retry=5
    And that run is cancelled
    Then the registry is idle, and it began 1 time

  Scenario: A config reaches the graph, with the thread_id added
    Given an open bridge on its own loop
    When a message on the thread "t" goes to a graph that answers with its config, with a config
    Then the answer has the thread "t" and that config, which is unchanged itself

  Scenario: A run may wait in its worker thread for another run of the same bridge
    Given an open bridge on its own loop with max_concurrency=2
    When a sync node waits for a run that it submits itself
    Then both have results

  Scenario Outline: A sync node sees the contextvars of its run's submitter, on <home> loop
    Given an open bridge on <home> loop
    When 8 threads submit sync nodes, each with a contextvar of its own
    Then each sync node has seen the contextvar of its submitter

    Examples:
      | home       |
      | its own    |
      | an adopted |

  Scenario Outline: A long-lived thread keeps nothing of its first user's context: <thread>
    Given an open bridge on <home> loop
    When a caller with a contextvar is the first to use <thread>, and another caller the next
    Then nothing refers to the value of that contextvar any more, and <thread> has not ended

    Examples:
      | thread                              | home       |
      | the loop's thread                   | its own    |
      | the loop's thread                   | an adopted |
      | a worker thread                     | its own    |
      | a worker thread                     | an adopted |
      | a thread for work that is of no run | its own    |
      | the thread of a StateActor          | its own    |
      | the thread of an SQLite file        | its own    |

  Scenario: Ten thousand messages from four threads are all answered and all counted
    Given an open bridge on its own loop
    When 4 threads send 2500 messages each to an async function
    Then every future has a result
    And the statistics count 10000 submitted, 10000 succeeded, none in flight

  Scenario: Work of the adopted loop that belongs to no run keeps the executor it had
    Given an open bridge on an adopted loop whose default executor is named "before"
    When a message goes to a graph with a sync node
    Then the run's sync code and the loop's other work are executed in threads of their own executors
