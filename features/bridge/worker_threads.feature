Feature: Sync code of runs has a bounded number of threads, which the runs share fairly

  # -- the bound

  Scenario: A run that fans out to 1,500 sync nodes has 32 threads for them by default
    Given an open bridge on its own loop with max_concurrency=1
    When a run fans out to 1500 sync nodes
    Then all 1500 were executed, by 32 threads at most

  Scenario Outline: With max_threads=<threads>, <runs> runs that fan out have <threads> threads together, <home> loop
    Given an open bridge on <home> loop with max_concurrency=3, max_threads=<threads>
    When <runs> runs at once fan out to 40 sync nodes each
    Then all of them were executed, by <threads> threads at most

    Examples:
      | threads | runs | home       |
      | 3       | 3    | its own    |
      | 5       | 3    | its own    |
      | 5       | 1    | an adopted |
      | 5       | 6    | an adopted |

  Scenario: The spare threads are really used: as many calls of one run are on at once as are allowed
    Given an open bridge on its own loop with max_concurrency=3, max_threads=8
    Then 6 calls of one run meet at a barrier for 6

  Scenario: A thread that a timed-out run has left active counts, and its run's slot too
    Given an open bridge on its own loop with max_concurrency=2, max_threads=2
    When a message goes to a blocking sync function, and times out
    And a run fans out to 5 calls of asyncio.to_thread
    Then its calls were executed one at a time, by one thread

  Scenario: A cancelled run withdraws its calls that wait for a thread, and holds its slot while one is running
    Given an open bridge on its own loop with max_concurrency=1, max_threads=1
    When a run fans out to 5 calls of asyncio.to_thread that block, and is cancelled
    And another message goes to an async function
    Then that one is answered once the first call has ended, and the other 4 never began

  Scenario Outline: max_threads=<number> is refused, naming what is allowed
    When the code under test calls "Bridge(max_concurrency=4, max_threads=<number>)"
    Then InvalidArgumentError is raised, which says "<words>"

    Examples:
      | number | words                                                  |
      | 3      | max_threads must be max_concurrency, 4, at least       |
      | 0      | max_threads must be a whole number from 1, not 0       |
      | 4.5    | max_threads must be a whole number from 1, not 4.5     |
      | '8'    | max_threads must be a whole number from 1, not '8'     |
      | True   | max_threads must be a whole number from 1, not True    |

  # -- fairness

  Scenario Outline: While a fan-out holds every spare thread, another run's sync code is executed at once: <spare> spare
    Given an open bridge on its own loop with max_concurrency=2, max_threads=<threads>
    When a run fans out to 100 calls of asyncio.to_thread that block
    And a message goes to a graph with a sync node
    Then it is answered while the others stand still

    Examples:
      | spare | threads |
      | 0     | 2       |
      | 3     | 5       |

  Scenario: Two runs that fan out take turns for the one spare thread
    Given an open bridge on its own loop with max_concurrency=2, max_threads=3
    When two runs fan out to 10 calls each, which end one by one
    Then each run always had a thread, and of every two that the spare one took on each had one

  Scenario Outline: Blocking calls of one run that wait for each other work as deep as with asyncio's own executor: <home>
    Given an open bridge on <home> loop with max_concurrency=1
    When a run nests blocking calls as deep as asyncio's own executor allows for
    Then the innermost one was reached

    Examples:
      | home       |
      | its own    |
      | an adopted |

  Scenario: Work of no run on a loop of the bridge's own is executed beside runs that hold every thread
    Given an open bridge on its own loop with max_concurrency=1, max_threads=1
    When a message goes to a blocking sync function
    And a call that belongs to no run goes to the default executor of that loop
    Then the loop's own call is answered while the run stands still

  Scenario Outline: Sync code of the first runs on an adopted loop has threads of the bridge, with <way>
    Given an open bridge on an adopted loop
    When 20 messages go with <way>, on the loop itself, to a function whose first step is in a thread
    Then they were executed in threads of the bridge

    Examples:
      | way                |
      | create_future_task |
      | submit             |
      | invoke             |
      | astream            |

  # -- idle threads

  Scenario: Idle threads end, and the next message has new ones
    Given an open bridge on its own loop whose threads end when they were idle for 0.01 s
    When a run fans out to 20 sync nodes
    Then the bridge has no worker thread any more
    When a message goes to a graph with a sync node
    Then every future has a result

  Scenario: Threads that have ended for being idle are not counted as idle any more
    Given an open bridge on its own loop whose threads end when they were idle for 0.01 s
    When a run fans out to 20 sync nodes
    Then the bridge has no worker thread any more
    When the idle time after which its threads end becomes 0 s
    And a message goes to a graph with a sync node
    Then the bridge has no worker thread any more
    When the idle time after which its threads end becomes 60 s
    And 50 messages, one after another, go to a graph with a sync node
    Then one thread has executed them all

  Scenario: Threads end although calls arrive at the very moments when they were idle for long enough
    Given an open bridge on its own loop whose threads end when they were idle for 0.0002 s
    When 300 runs, one after another, fan out to 20 sync calls each
    Then the bridge has no worker thread any more

  Scenario: Of the threads of a burst, those that the messages after it do not need end all the same
    Given an open bridge on its own loop whose threads end when they were idle for 0.05 s
    When 20 calls of one run meet, and then messages go to a sync function one after another
    Then in the end no more than two threads are left

  Scenario: A thread is handed a call at the very moment when it was idle for long enough
    Given an open bridge on its own loop whose threads end when they were idle for 0 s
    When 300 messages, one after another, go to a graph with a sync node
    Then every future has a result

  Scenario: A call is executed by a thread that was idle, rather than by a new one
    Given an open bridge on its own loop
    When 50 messages, one after another, go to a graph with a sync node
    Then one thread has executed them all

  Scenario: If no thread can be started the run fails, and the next one gets a thread and a slot
    Given an open bridge on its own loop with max_concurrency=1, max_threads=2
    When a message goes to a graph with a sync node while no thread can be started
    Then the future raises RuntimeError, "can't start new thread"
    When a message goes to a graph with a sync node
    Then the last future has a result

  Scenario: If the thread that a run counts on cannot be started, its waiting calls fail too, and none is lost
    Given an open bridge on its own loop with max_concurrency=2, max_threads=3
    When no thread can be started for a call, and the run's other thread goes to another run meanwhile
    Then that call, and the one of the run that waits behind it, raise RuntimeError
    And both runs have ended, and nothing is counted any more
    And 2 calls of one run meet at a barrier for 2

  Scenario: A long-lived thread keeps no exception of an earlier call
    Given an open bridge on its own loop
    When a run handles what a call of asyncio.to_thread raises, while the cyclic collector is off
    Then nothing refers to what it raised

  Scenario: No frame that a worker thread still executes is in the traceback of what it raised
    Given an open bridge on its own loop
    When a sync function raises, and its thread tells so
    Then the frames of its traceback have ended, and the function's is one of them
