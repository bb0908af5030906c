Feature: A paused loop is not gone: runs in flight are given up, and the bridge resumes with the loop

  A loop that does not run may run again, or not; that is unknown. So no message is taken meanwhile,
  and after a while no future waits for it any more; but no run leaves the registry before its end.

  # -- messages

  Scenario Outline: A bridge answers as often as <host> runs its loop, and refuses messages in between
    Given a program that runs its loop by <host>, and a bridge that adopts it
    When the loop runs 5 times, and each time a message is sent from it and one from another thread
    Then all 10 were answered
    And each message between two of them was refused with LoopUnavailableError, "is not running now; it is used again as soon as it runs again"

    Examples:
      | host                          |
      | asyncio.Runner                |
      | run_until_complete            |
      | a new thread each time        |
      | asyncio.Runner, with uvloop   |
      | run_until_complete of uvloop  |

  Scenario: A bridge that was made and refused before its loop ever ran works when that runs
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When a message is sent while the loop does not run
    Then LoopUnavailableError is raised, which says "is not running; adopt a running one"
    When the loop runs, and a message is sent from it
    Then it was answered

  Scenario: After a pause, a new stream of the bridge works
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When two streams go through invoke, each while the loop runs
    Then both have completed with all their results

  # -- what is in flight

  Scenario Outline: Runs in flight when the loop pauses are given up, stay in the registry, and end when it runs again: <host>
    Given a program that runs its loop by <host>, and a bridge that adopts it with max_concurrency=1
    When the loop stops with a run that cleans up slowly, one that waits for its turn, and a message on its way
    Then they are all given up with LoopUnavailableError, and the registry has all 3
    When the program runs its loop again
    Then the one that was on has cleaned up, the others never began, and the registry is empty
    And the statistics count 3 failed
    And a message on the same thread_id is answered

    Examples:
      | host                        |
      | asyncio.Runner              |
      | a new thread each time      |
      | asyncio.Runner, with uvloop |

  Scenario: A run survives a pause that is over before the watch thread looks
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it, whose loop is not watched
    When the loop stops with a run in flight, and runs again
    Then that run is answered

  Scenario: A loop that runs again and again for a moment never counts as paused
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When a run is in flight, and the loop runs for a moment before each of 8 looks
    Then its future is not resolved
    When the loop stands still for 2 looks
    Then its future raises LoopUnavailableError

  Scenario: A sync node that ends during the pause leaves its thread at once, and the registry when the loop runs
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it with max_concurrency=1
    When the loop stops with a blocking sync node at work, which ends in the pause
    Then its future raises LoopUnavailableError, and the registry has it
    When the program runs its loop again
    Then the registry is empty, and the next message is answered

  Scenario: A run that swallows its cancellation after the pause holds its slot until it ends
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it with max_concurrency=1
    When the loop stops with a run that swallows cancelling, and runs again with a new message
    Then the new one has begun only after the old one had ended

  Scenario Outline: A run that is cancelled after the pause keeps its thread until LangGraph has saved what it did: <host>
    Given a program that runs its loop by <host>, and a bridge that adopts it, whose loop is not watched
    When the loop stops with a graph that waits for its saver, and runs again: the graph is cancelled, and its thread has a new message
    Then the new one has begun only after the saver was done

    Examples:
      | host                   |
      | asyncio.Runner         |
      | a new thread each time |

  Scenario Outline: A run whose time is over after the pause names its node, and its stack has the node: <host>
    Given a program that runs its loop by <host>, and a bridge that adopts it, whose loop is not watched
    When the loop stops with a run in flight that has a time limit, and runs again until that is over
    Then its error names the node, and its stack on the loop had the line at which the node waits

    Examples:
      | host                   |
      | asyncio.Runner         |
      | a new thread each time |

  Scenario: A message that is sent just as the loop stops is given up too
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When a message passes the look at the loop, which stops before it is handed over
    Then its future raises LoopUnavailableError, and it never begins when the loop runs again

  Scenario: A submitter that waits for room when the loop pauses is refused, and finds room when it runs again
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it with max_concurrency=1, max_pending=1
    When 3 threads wait for room, and the loop stops
    Then each of the 3 was refused with LoopUnavailableError
    When the program runs its loop again
    Then there is room for 1 message and no more

  Scenario: concurrent.futures.wait returns during the pause for a run that was cancelled in it
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When the loop stops with a run in flight, which is cancelled in the pause
    Then "concurrent.futures.wait" finds it done, and the registry has it

  @tolerates:wait
  Scenario Outline: A callback that waits for another run blocks no other when the loop <goes>
    Given a program that runs its loop by run_until_complete, and a bridge that adopts it
    When the loop <goes> under 3 runs, each with a callback that waits for the next one
    Then every future is resolved, and every callback has been called once

    Examples:
      | goes      |
      | pauses    |
      | is closed |

  @tolerates:wait
  Scenario Outline: A thread that waits for runs with callbacks is woken once for each when the loop <goes>
    Given a program that runs its loop by run_until_complete, and a bridge that adopts it
    When the loop <goes> under 3 runs that have callbacks, with a waiter of the standard library at each
    Then the waiter was told of each of the 3 once

    Examples:
      | goes      |
      | pauses    |
      | is closed |

  @tolerates:wait
  Scenario: A thread that outlasts the loop of a run that would be tried again ends quietly
    Given a program that runs its loop by run_until_complete, and a bridge that adopts it, whose loop is not watched
    When a sync function outlasts its timeout, then its loop, and has its retry left
    Then its thread has ended without an exception

  # -- the end

  Scenario: A bridge that is closed in a pause reports what has not ended, soon, and that ends when the loop runs
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When the loop stops with a run in flight, and the bridge is closed without a limit
    Then its report names that run, and its future is done
    When the program runs its loop again
    Then that run has ended, the registry is closed, and the loop and its tasks are as they were

  Scenario: A bridge that is closed while its loop runs for a moment between two pauses reports what has not ended, soon
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When the loop has paused with a run in flight, and runs just until the bridge, closed without a limit, asks for its end
    Then its report names that run, and its future is done
    When the program runs its loop again
    Then that run has ended, the registry is closed, and the loop and its tasks are as they were

  Scenario: Nothing is logged when a bridge is closed in a pause and its loop immediately afterwards
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When the loop stops with a run in flight, and the bridge is closed without a limit
    And the program ends
    Then that run has ended, and the registry is closed

  Scenario: A bridge that is closed in a pause with nothing in flight has no thread left
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When the loop runs, and a message is sent from it
    And the bridge is closed
    Then its report says "0 cancelled, 0 completed, 0 failed, 0 stuck"
    And nothing is raised, and its threads end
    When the program runs its loop again
    Then the loop and its tasks are as they were

  Scenario: A cleanup in a pause names what has not ended, and the bridge resumes when the loop runs
    Given a program that runs its loop by asyncio.Runner, and a bridge that adopts it
    When the loop stops with a run in flight, and a cleanup without a limit
    Then its report names that run, and its future is done
    When the loop runs, and a message is sent from it
    Then it was answered

  @tolerates:wait
  Scenario Outline: A paused loop that is closed is gone, for a bridge that is <state>
    Given a program that runs its loop by run_until_complete, and a bridge that adopts it
    When the loop stops with a run in flight, the bridge <state>, and the loop is closed
    Then the future is done, the registry is empty, and the bridge has no thread when it is closed

    Examples:
      | state      |
      | stays open |
      | is closed  |

  @tdd_expected_fail
  Scenario: Plain asyncio: a future of run_coroutine_threadsafe waits as long as the pause lasts
    Given a program that runs its loop by asyncio.Runner
    When the loop stops with a coroutine of run_coroutine_threadsafe in flight
    Then that future is resolved within the pause
