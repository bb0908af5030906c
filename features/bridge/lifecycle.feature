Feature: A bridge owns a loop or adopts one, and ends with everything accounted for

  # -- how it begins

  Scenario: A bridge starts no thread before its first message, and one loop thread with it
    Given an open bridge on its own loop
    Then nothing is raised, and its threads end
    When a message goes to an async function
    Then it has one thread, a daemon, named after the bridge

  Scenario: Eight threads that send the first messages at once make one loop
    Given an open bridge on its own loop
    When 8 threads send 1 messages each to an async function
    Then every future has a result
    And it has one thread, a daemon, named after the bridge

  Scenario: Runs of a bridge that adopted a loop are executed on that loop
    Given an open bridge on an adopted loop
    Then a run's loop is the adopted one

  Scenario Outline: <What> is refused, naming the remedy
    When the code under test calls "<call>"
    Then <error> is raised, which says "<words>"

    Examples:
      | What                       | call                                          | error                | words                                   |
      | No slot at all             | Bridge(max_concurrency=0)                     | InvalidArgumentError | max_concurrency must be a whole number from 1, not 0 |
      | Half a slot                | Bridge(max_concurrency=2.5)                   | InvalidArgumentError | not 2.5                                 |
      | A number of slots in words | Bridge(max_concurrency='3')                   | InvalidArgumentError | not '3'                                 |
      | A truth for a number       | Bridge(max_concurrency=True)                  | InvalidArgumentError | not True                                |
      | No bound on slots          | Bridge(max_concurrency=None)                  | InvalidArgumentError | not None                                |
      | An empty backlog           | Bridge(max_pending=0)                         | InvalidArgumentError | max_pending must be a whole number from 1 |
      | An empty thread queue      | Bridge(max_pending_per_thread=0)              | InvalidArgumentError | max_pending_per_thread must be a whole    |
      | A timeout in the past      | Bridge(timeout=-1)                            | InvalidArgumentError | timeout must be a number of seconds above 0, or None for no limit, not -1 |
      | A timeout that is not a number | Bridge(timeout=nan)                          | InvalidArgumentError | not nan                                 |
      | An unknown overflow        | Bridge(overflow='drop')                       | InvalidArgumentError | overflow must be one of 'block', 'error', 'drop_newest', 'drop_oldest', 'latest', not 'drop' |
      | A loop that is none        | Bridge('loop')                                | InvalidTypeError     | must be an asyncio event loop or None, not 'loop' |

  Scenario Outline: A loop that is <state> cannot be adopted, and the error gives that reason
    When a message is sent through a bridge that adopts a loop which is <state>
    Then LoopUnavailableError is raised, which says "is <state>; adopt a running one, or let the bridge own its loop"
    And closing that bridge works

    Examples:
      | state       |
      | closed      |
      | not running |

  # -- how it ends

  Scenario Outline: Leaving "<form>" waits for what is in flight, then ends the loop thread
    When messages are sent inside "<form>", which is left normally
    Then every future has a result
    And nothing is raised, and its threads end

    Examples:
      | form       |
      | with       |
      | async with |

  Scenario Outline: An exception that leaves "<form>" cancels what is in flight, and arrives
    When messages are sent inside "<form>", which an exception leaves
    Then that exception arrives, and every run was cancelled and has ended
    And it gave them no time to end by themselves

    Examples:
      | form       |
      | with       |
      | async with |

  Scenario: close gives runs until its deadline, then cancels them, and its report counts both
    Given an open bridge on its own loop
    When a message goes to an async function
    And a message goes to an async function that cleans up slowly
    And the gate for cleaning up opens
    And the bridge is closed with 0.05 s to drain, which are over when the first has ended
    Then every run has ended, and 1 was cancelled
    And nothing is raised, and its threads end

  Scenario: close waits for a run that has its result and is about to leave, also if it drains nothing
    Given an open bridge on its own loop
    When a hook holds up the end of a run, and the bridge is closed with 0 s to drain
    Then the report has no stuck run

  Scenario Outline: By default <method> gives runs 5 s to end, and 5 s more when they are cancelled
    Then <method> has timeout=5.0 and cancel_timeout=5.0

    Examples:
      | method |
      | close  |
      | aclose |

  Scenario: close gives a stream that a run has left half-read its own cleanup
    Given an open bridge on its own loop
    When a run leaves a stream half-read
    And the bridge is closed
    Then that stream has cleaned up

  Scenario: close of a bridge that never ran anything returns at once
    Given an open bridge on its own loop
    When the bridge is closed
    Then the report is empty, and it has no thread

  Scenario Outline: A bridge on <home> loop is closed twice, and by eight threads at once
    Given an open bridge on <home> loop
    When 4 messages go to a waiting graph
    And 8 threads close it without draining, and one closes it again
    Then all of them return, every run has ended, and it has no thread

    Examples:
      | home       |
      | its own    |
      | an adopted |

  Scenario: A closed bridge refuses messages, and names the remedy
    Given an open bridge on its own loop
    When the bridge is closed
    And the code under test calls "bridge.create_future_task(print, 1)"
    Then BridgeClosedError is raised, which says "is closed and takes no more messages; make a new one"
    When a stream of 1 message goes to an async function
    Then the stream fails with BridgeClosedError

  Scenario Outline: <call> is refused, and neither cancels nor closes anything
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And the code under test calls "bridge.<call>"
    Then InvalidArgumentError is raised, which says "must be a number of seconds, or None for no limit"
    And the bridge answers the next message
    When the gate opens
    Then every future has a result

    Examples:
      | call                        |
      | cleanup_tasks('soon')       |
      | cleanup_tasks(nan)          |
      | close('soon')               |
      | close(nan)                  |
      | close(0, cancel_timeout='') |

  Scenario Outline: <call> has no limit
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And bridge.<call> is called, which reports how it ended
    Then every run has ended, and 1 was cancelled

    Examples:
      | call                              |
      | cleanup_tasks(infinity)           |
      | close(0, cancel_timeout=infinity) |

  Scenario: The refusal of a bridge that was closed after use is the only error in its traceback
    Given an open bridge on its own loop
    When a message goes to an async function
    And the bridge is closed
    And the code under test calls "bridge.create_future_task(print, 1)"
    Then BridgeClosedError is raised, which says "make a new one"
    And no other error is in its traceback

  Scenario: A closed bridge gives an adopted loop back as it was, and running
    Given an open bridge on an adopted loop whose default executor is named "before"
    When a message goes to a graph with a sync node
    And the bridge is closed
    Then the adopted loop runs, with its executor and without a task of the bridge

  Scenario: close on the loop's own thread is refused with the remedy, and closes nothing
    Given an open bridge on its own loop
    When one of its runs calls "bridge.close()"
    Then BlockingCallError is raised, which says "use 'await bridge.aclose()' there, or 'bridge.close(0, cancel_timeout=0)' to close without waiting"
    And the bridge answers the next message

  Scenario: close without anything to wait for may be called on the loop's own thread
    Given an open bridge on its own loop
    When one of its runs calls "bridge.close(0, cancel_timeout=0)"
    Then nothing is raised, and its threads end

  Scenario: A bridge that is dropped without being closed ends its loop thread
    Given an open bridge on its own loop
    When a message goes to a graph with a sync node
    Then every future has a result
    When the bridge is dropped
    Then nothing is raised, and its threads end

  Scenario: A bridge that is dropped while a run is on lives until that run has ended
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And the bridge is dropped
    And the gate opens
    Then every future has a result
    When the futures are dropped too
    Then nothing is raised, and its threads end

  Scenario Outline: When <what>, every future is resolved
    Given an open bridge on <home> loop
    When 3 messages go to a waiting graph, and 40 to a waiting async function
    And <what>
    Then every future is done, with LoopUnavailableError or cancelled
    And the bridge refuses the next message with LoopUnavailableError

    Examples:
      | what                            | home       |
      | other code stops the loop       | its own    |
      | other code stops the loop       | an adopted |
      | the adopted loop's program ends | an adopted |

  Scenario: An adopted loop that is stopped without notice is detected
    When a loop that runs forever is adopted, given a waiting graph, and stopped
    Then the future raises LoopUnavailableError, "is not running"
    And closing that bridge names the run, which has not ended

  Scenario: After all tasks of an adopted loop were cancelled, as they are at its end, a new bridge is needed
    Given an open bridge on an adopted loop
    When a message goes to a waiting graph
    And other code cancels all tasks of the loop, which keeps running
    Then every future is done, with LoopUnavailableError or cancelled
    And the bridge refuses the next message with LoopUnavailableError, "make a new bridge"
    And a new bridge on that loop answers

  # -- signal handlers

  # A signal may come while coverage holds its own lock, which then stops all threads.
  @unmeasured
  Scenario: A signal handler may close the bridge while the main thread is sending to it
    Given an open bridge on its own loop
    When a signal handler closes it, 20 times over, while the main thread is sending
    Then each time the main thread was refused, every future is done, and the registry is empty

  @unmeasured
  Scenario: A signal handler may clean up while the main thread is sending, which continues
    Given an open bridge on its own loop
    When a signal handler cleans up, 20 times over, while the main thread is sending
    Then each cleanup returned, and the bridge answers the next message

  Scenario: A signal handler may clean up while the main thread holds the bridge's lock
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And a signal handler cleans up while the main thread is inside a section of the bridge
    Then its report has nothing stuck

  Scenario: A signal handler that closes the bridge frees a main thread that waits for room
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When the main thread waits for room, and a signal handler closes the bridge
    Then the main thread was refused with BridgeClosedError

  # -- room

  Scenario: max_pending lets a submitter wait until a run has started
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2
    When a thread sends 6 messages to a waiting graph
    Then it is blocked with 1 run begun and 2 waiting for their start
    When the gate opens
    Then that thread has sent 6, and all have results

  Scenario: Closing the bridge releases every submitter that waits for room
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When 4 threads wait for room
    And the bridge is closed without draining
    Then each of the 4 threads was refused with BridgeClosedError

  Scenario: Cancelling a run that waits for its start makes room
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When 1 threads wait for room
    And the run that has not started is cancelled
    Then the thread that waited has sent its message

  Scenario: Waiting for room on the loop's own thread is refused with the remedy
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a run sends messages until one is refused
    Then BlockingCallError is raised, which says "use 'await bridge.submit(...)' or bridge.from_iterable(...) there, submit from another thread, or make the bridge with max_pending=None"

  # -- the interpreter's exit

  Scenario Outline: At interpreter exit nothing hangs and nothing is printed: <what>
    When this program ends without closing its bridge: <what>
    Then it ends by itself with status 0, and prints only what it was told to print

    Examples:
      | what                              |
      | nothing was ever sent             |
      | all is answered                   |
      | runs in flight                    |
      | graphs in flight                  |
      | a run with a cleanup of its own   |
      | a sync function that never ends   |
      | a sync node that never ends       |
      | a run that swallows cancelling    |
      | a run that blocks the loop        |
      | an adopted loop in a thread       |
      | an adopted loop of asyncio.run    |
      | a paused loop with runs in flight |
      | a call of no run that never ends  |
      | daemon threads that go on sending |
      | a stream that never completes     |
      | a bridge inside a cycle           |

  Scenario: At interpreter exit the runs of all bridges are cancelled before one is waited for
    When this program ends without closing its bridge: four bridges whose runs clean up together
    Then it has printed "cleaned up" 4 times

  Scenario: At interpreter exit thirty stuck bridges take no longer than one
    When this program ends without closing its bridge: thirty bridges with a stuck run each
    Then it has left within 20 seconds, for a second or two each would be more than that

  Scenario: At interpreter exit a task that a node has left on the loop still cleans up
    When this program ends without closing its bridge: a task that a node has left behind
    Then it has printed "cleaned up"

  Scenario: At interpreter exit a run's own cleanup is still executed
    When this program ends without closing its bridge: a run with a cleanup of its own
    Then it has printed "cleaned up"

  Scenario Outline: At interpreter exit a run's own cleanup is still executed after <what>
    When this program ends without waiting for its bridge: <what>
    Then it has printed "cleaned up"

    Examples:
      | what                                       |
      | Ctrl-C in the wait at the end of its block |
      | aclose that was cancelled                  |
      | close without waiting, in a signal handler |

  # -- other processes, and loops that are run again

  Scenario Outline: <what> cannot be pickled for another process, and the error names the remedy
    Given an open bridge on its own loop
    When the code under test calls "pickle.dumps(<call>)"
    Then InvalidTypeError is raised, which says "<words>"

    Examples:
      | what             | call                                | words                                                                                                                                                             |
      | A bridge         | bridge                              | belongs to this process, as do its threads, and cannot be pickled for another one, or copied: make a new one there: RxPyLangGraphBridge()                         |
      | A bound method   | bridge.invoke                       | make a new one there: RxPyLangGraphBridge()                                                                                                                       |
      | A run            | bridge.create_future_task(str, 1)   | on 'str' belongs to this process, as do its threads, and cannot be pickled for another one, or copied: send its result, which can be                            |

  Scenario: With nest_asyncio a function may run its own loop again, and wait there for another run
    When this program ends without waiting for its bridge: functions that run their own loops again
    Then it has printed "on its own loop"
    And it has printed "on an adopted loop"
