Feature: A run may wait for other runs; a wait that could never end is refused at once

  Scenario Outline: A node that waits by <way> for a run on its own thread is refused with the remedy
    Given an open bridge on <home> loop
    When a run sends to its own thread, and waits by <way>
    Then DeadlockError is raised, which says "do not wait for it, or send it with another thread_id or none"
    And the bridge goes on as if nothing had been

    Examples:
      | way                 | home       |
      | result()            | its own    |
      | result(60)          | its own    |
      | exception()         | its own    |
      | await               | its own    |
      | wrap_future()       | its own    |
      | result() in a graph | its own    |
      | await in a graph    | its own    |
      | result()            | an adopted |
      | await               | an adopted |

  Scenario Outline: Of parents that hold every slot and wait by <way>, one is refused, and the others continue
    Given an open bridge on its own loop with max_concurrency=3
    When 3 parents hold its slots, and each waits by <way> for a child
    Then 1 of them ended with DeadlockError, "raise max_concurrency", and 2 have a result
    And the bridge goes on as if nothing had been

    Examples:
      | way           |
      | result()      |
      | result(60)    |
      | await         |
      | wrap_future() |

  Scenario: As long as one slot is held by a run that does not wait, parents may wait for children
    Given an open bridge on its own loop with max_concurrency=4
    When 3 parents hold its slots, and each waits by result() for a child
    Then 0 of them ended with DeadlockError, "raise max_concurrency", and 3 have a result

  Scenario Outline: A run that <does this> is refused at once
    Given an open bridge on its own loop with <options>
    When a run is sent that <does this>
    Then DeadlockError is raised, which says "<remedy>"
    And the bridge goes on as if nothing had been

    Examples:
      | does this                                                            | options       | remedy                  |
      | waits for itself                                                     | name='x'      | go on without the other |
      | waits for one that waits for it                                      | name='x'      | go on without the other |
      | waits for a child that waits for one on its thread                   | name='x'      | another thread_id       |
      | waits for a run of another bridge, which waits for one on its thread | name='x'      | another thread_id       |
      | sends more to its own thread than max_pending lets in                | max_pending=2 | a larger max_pending    |
      | blocks its loop for a run of another bridge, which awaits one of this | name='x'     | 'await' there           |
      | blocks its loop for room of another bridge, whose loop waits for room | max_pending=1 | not in the thread of an event loop |
      | waits for room that those behind it in an ordered stream have        | max_concurrency=2, max_pending=2 | a larger max_pending |
      | waits for room that results of an earlier stage take                 | max_concurrency=8, max_pending=4 | a larger max_pending |
      | calls registry.wait_idle()                                           | name='x'      | from outside            |
      | calls registry.wait_idle(60)                                         | name='x'      | from outside            |
      | calls cleanup_tasks()                                                | name='x'      | from outside            |
      | calls close()                                                        | name='x'      | from outside            |
      | awaits registry.wait_idle_async()                                    | name='x'      | from outside            |

  Scenario Outline: A run that has given up <wait> may be waited for: <where>, child: <child>
    Given an open bridge on <home> loop
    When a run <where> gives up <wait> for a child, which then waits for it by <child>
    Then both of them are answered
    And the bridge goes on as if nothing had been

    Examples:
      | wait                           | where                 | child    | home       |
      | wait_for(shield())             | on it                 | await    | its own    |
      | wait_for(shield())             | on it                 | result() | its own    |
      | wait_for(shield())             | on it                 | await    | an adopted |
      | wait_for(shield())             | of another bridge     | await    | its own    |
      | wait_for(shield())             | of another bridge     | result() | its own    |
      | wait_for(shield())             | in a graph            | await    | its own    |
      | timeout() and shield(gather()) | on it                 | await    | its own    |
      | wait(timeout=...)              | on it                 | await    | its own    |
      | wait(timeout=...)              | in a graph            | result() | its own    |
      | wait(FIRST_COMPLETED)          | on it                 | await    | its own    |
      | a task in the background       | on it                 | await    | its own    |
      | a task in the background       | in a graph            | await    | its own    |
      | tasks within tasks             | on it                 | await    | its own    |

  Scenario Outline: While a run waits by <wait> for a child, the child is refused: <where>, child: <child>
    Given an open bridge on <home> loop
    When a run <where> waits by <wait> for a child, which then waits for it by <child>
    Then the child is refused: "let one of them go on without the other's result"
    And the bridge goes on as if nothing had been

    Examples:
      | wait                          | where             | child    | home       |
      | await                         | on it             | await    | its own    |
      | await                         | on it             | result() | its own    |
      | await                         | in a graph        | await    | its own    |
      | await                         | of another bridge | await    | its own    |
      | wrap_future()                 | on it             | await    | an adopted |
      | gather()                      | on it             | await    | its own    |
      | gather()                      | in a graph        | result() | its own    |
      | shield()                      | on it             | await    | its own    |
      | wait()                        | on it             | await    | its own    |
      | as_completed()                | on it             | await    | its own    |
      | a TaskGroup                   | on it             | await    | its own    |
      | a task that awaits a task     | in a graph        | await    | its own    |
      | a wait that was given up once | on it             | await    | its own    |

  Scenario: A run that awaits room in a task of its own is waiting, and may not be awaited by what has its slot
    Given an open bridge on its own loop with max_concurrency=2, max_pending=1
    When a run awaits room in a task, and the only other run that has a slot awaits that run
    Then the second one is refused: "let one of them go on", and the first one is answered

  Scenario: A run that awaits a child which is cancelled has failed, and is not cancelled itself
    Given an open bridge on its own loop
    When a run awaits a child, which is cancelled
    Then the run has failed with RunError: "waited for a run that was cancelled"

  Scenario: An actor that sends to its own thread without waiting is answered in order
    Given an open bridge on its own loop
    When a run sends two messages to its own thread, and ends
    Then they ran after it, in their order

  Scenario: A run that waits for room gets it when other runs start
    Given an open bridge on its own loop with max_pending=1
    When a run sends 20 messages to no thread, and then waits for all
    Then it has all 20 results

  Scenario: Fifty runs deep, each waits for the next on a thread of its own
    Given an open bridge on its own loop with max_concurrency=51
    When runs wait for each other 50 deep
    Then the innermost result arrives

  Scenario Outline: Whatever runs wait for each other with <options>, all of them end
    When 10 forests of runs that wait for each other grow on bridges with <options>
    Then every run ended, and some of the waits were refused

    Examples:
      | options                          |
      | max_concurrency=1                |
      | max_concurrency=3                |
      | max_concurrency=3, max_pending=2 |

  Scenario: Where there is a slot for every run, none is refused
    When 10 forests of runs without threads grow on bridges with max_concurrency=200
    Then every run ended, and none of the waits were refused

  @tdd_expected_fail
  Scenario: A ThreadPoolExecutor does not detect a task that waits for one behind it
    When a task of a ThreadPoolExecutor waits for one behind it
    Then it is told that this is a deadlock
