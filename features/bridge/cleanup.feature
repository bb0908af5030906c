Feature: Cleanup cancels the runs in flight, awaits their own cleanup, and names those that do not end

  Scenario: Without a bridge, cancelling a future returns before the coroutine's cleanup has run
    When a plain future of run_coroutine_threadsafe is cancelled
    Then it is done at once, and its coroutine has not cleaned up

  Scenario Outline: <form> returns after the runs' own cleanup, on <home> loop
    Given an open bridge on <home> loop
    When 3 messages go to a graph that cleans up slowly
    And they have all begun
    And <form> is called, and the gate for cleaning up opens only after that
    Then all 3 have cleaned up when it returns, and its report says "3 cancelled, 0 completed, 0 failed, 0 stuck"
    And the bridge answers the next message

    Examples:
      | form                | home       |
      | cleanup_tasks       | its own    |
      | cleanup_tasks       | an adopted |
      | cleanup_tasks_async | its own    |
      | cleanup_tasks_async | an adopted |

  Scenario: A run that was cancelled before is not cancelled again, which would cut its cleanup short
    Given an open bridge on its own loop
    When 3 messages go to a graph that cleans up slowly
    And they have all begun
    And their futures are cancelled, and they are cancelled again while they clean up
    And cleanup_tasks is called, and the gate for cleaning up opens only after that
    Then all 3 have cleaned up when it returns, and its report says "3 cancelled, 0 completed, 0 failed, 0 stuck"

  Scenario Outline: <Kind> is named as stuck, with its age and the function it is in
    Given an open bridge on <home> loop
    When a message goes to <kind>
    And they have all begun
    And the bridge is cleaned up with 0.2 s to wait
    Then 1 run is stuck, with its age, and its stack names "<function>"
    And the report in words does so too
    When the gate opens
    Then the registry becomes idle
    And the bridge answers the next message

    Examples:
      | Kind                                       | kind                                       | function         | home       |
      | A graph that swallows cancelling           | a graph that swallows cancelling           | in swallow       | its own    |
      | An async function that swallows cancelling | an async function that swallows cancelling | in swallow       | an adopted |
      | A blocking sync function                   | a blocking sync function                   | in block         | its own    |
      | A blocking sync function                   | a blocking sync function                   | in block         | an adopted |
      | A graph with a blocking sync node          | a graph with a blocking sync node          | in block         | its own    |
      | A graph with a blocking sync node          | a graph with a blocking sync node          | in block         | an adopted |
      | An async function that blocks the loop     | an async function that blocks the loop     | in block_the_loop | its own    |
      | An async function that blocks the loop     | an async function that blocks the loop     | in block_the_loop | an adopted |

  Scenario: The report distinguishes cancelled runs from those that completed or failed meanwhile
    Given an open bridge on its own loop
    When runs are on of which one completes, one fails and one is cancelled in a cleanup
    Then its report says "1 cancelled, 1 completed, 1 failed, 0 stuck"

  Scenario: Runs that arrive during a cleanup are cancelled and never begin; after it the bridge works
    Given an open bridge on its own loop
    When a run's own cleanup sends 10 messages to an async function
    Then those are cancelled, registered until they ended, and never began
    And the bridge answers the next message

  Scenario: With 4 threads submitting, no run admitted before a cleanup returned is running after it
    Given an open bridge on its own loop
    When 4 threads send messages without a pause, and the bridge is cleaned up 20 times
    Then no cleanup left a run behind that was admitted before it began
    And every future is done in the end

  Scenario: A cancellation before a run's first step ends the run
    Given an open bridge on an adopted loop with max_concurrency=1
    When a run is cancelled between its start and its first step
    Then the registry becomes idle
    And the bridge answers the next message

  Scenario: A run ends after its cancellation, even if the tasks of its loop cannot be listed at first
    Given an open bridge on its own loop
    And a process whose tasks come and go too fast to be listed, 2 times
    When 1 messages wait in a graph on the threads "a"
    Then cleaning up the bridge cancels 1 run, after 3 looks at the tasks

  Scenario: cleanup_tasks on the loop's own thread is refused with the remedy, and cancels nothing
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And one of its runs calls "bridge.cleanup_tasks()"
    Then BlockingCallError is raised, which says "use 'await bridge.cleanup_tasks_async()' there"
    When the gate opens
    Then every future has a result

  Scenario: cleanup_tasks without waiting is allowed on the loop's own thread
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And they have all begun
    And one of its runs calls "bridge.cleanup_tasks(0)"
    Then the run that waited is cancelled, and nothing was raised

  Scenario: A run that awaits a cleanup of its own bridge is cancelled like all others
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    And a run awaits cleanup_tasks_async of its own bridge
    Then both are cancelled, and the registry becomes idle

  Scenario: A cleanup with nothing in flight returns at once, also before the first message
    Given an open bridge on its own loop
    When the bridge is cleaned up with 0.2 s to wait
    Then its report says "0 cancelled, 0 completed, 0 failed, 0 stuck"

  Scenario: Overlapping cleanups all return with nothing left
    Given an open bridge on its own loop
    When 20 messages go to a waiting graph
    And 8 threads clean up at once
    Then none of their reports has anything stuck, and the registry is empty

  Scenario: A run that ends while its stack is taken is in the report all the same
    Given an open bridge on its own loop
    When a message goes to a graph that swallows cancelling
    And it ends just as a cleanup looks where it is
    Then the report names it as stuck

  Scenario: close names stuck runs, and returns all the same
    Given an open bridge on its own loop
    When a message goes to a blocking sync function
    And they have all begun
    And the bridge is closed, with 0.05 s to drain and 0.05 s for the cancelled
    Then 1 run is stuck, with its age, and its stack names "in block"
    When the gate opens
    Then the registry becomes idle

  Scenario: Cancelling many runs at once does not look at the tasks of all of them for each one
    Given an open bridge on its own loop with max_concurrency=500
    When 500 runs wait, and are cleaned up
    Then all 500 were cancelled, and the tasks were looked through fewer than 50 times
