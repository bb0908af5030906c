Feature: What each method of TaskRegistry promises

  Scenario: After close() tasks are refused, untouched, and the rest may end
    Given a TaskRegistry with the pending tasks "a, b"
    When it is closed
    Then closing returned the pending tasks "a, b"
    And its state is "closing"
    And adding a task raises RegistryClosedError, and leaves the task alone
    When it is closed
    Then closing returned the pending tasks "a, b"
    When all its tasks end
    Then its state is "closed"
    When it is closed
    Then closing returned the pending tasks ""

  Scenario: A snapshot has the tasks in flight, their ages and their states
    Given a TaskRegistry with the pending tasks "a, b"
    When "a" starts running
    Then the snapshot shows "a" running and "b" pending, in this order, on thread "t"
    And the ids rise, the ages are no less than zero, and nothing that it tells can be changed

  Scenario: An asyncio task is running, then cancelling, then gone
    When an asyncio task is added on its own loop, and cancelled
    Then the snapshot showed it running, then cancelling, then not at all
    And 1 tasks came: 0 succeeded, 0 failed, 1 cancelled

  Scenario: Added twice a task counts once
    Given a TaskRegistry with the pending tasks "a"
    When "a" is added again
    Then the registry holds 1 task
    And 1 tasks came: 0 succeeded, 0 failed, 0 cancelled

  Scenario: Discarding removes a task at once, and a pending one counts only as submitted
    Given a TaskRegistry with the pending tasks "a, b"
    When "a" is discarded, twice, and later succeeds
    Then the registry holds 1 task
    And 2 tasks came: 0 succeeded, 0 failed, 0 cancelled

  Scenario: The peak is the largest number that was ever in flight
    Given a TaskRegistry with the pending tasks "a, b"
    When all its tasks end
    And a task is added that ended before it was added
    Then at most 2 were in flight at once

  Scenario: During a sweep, arriving tasks are admitted and cancelled
    Given a TaskRegistry with the pending tasks "a"
    When a sweep begins, tasks arrive and end, and it ends
    Then the arrivals were cancelled, and the sweep counted them
    And the sweep names "a", which is still there
    And a task that arrives after it is not cancelled

  Scenario Outline: <What> is refused with <error>
    Given a TaskRegistry
    Then adding <what> raises <error>, which says what to do

    Examples:
      | What                             | what                             | error            |
      | A coroutine                      | a coroutine                      | InvalidTypeError |
      | A string                         | a string                         | InvalidTypeError |
      | A task of a loop of another thread | a task of a loop of another thread | WrongThreadError |

  Scenario: Cancelling everything reaches the tasks of another thread's loop through that loop
    Given a TaskRegistry with a task on a loop in another thread
    When everything in it is cancelled
    Then the registry gets empty
    And 1 tasks came: 0 succeeded, 0 failed, 1 cancelled

  Scenario: Cancelling everything tolerates a loop that is closed
    Given a TaskRegistry with a future of a loop that is closed
    When everything in it is cancelled
    Then no error is raised

  Scenario: Waiting for an idle registry ends when it is idle, or when the time is over
    Given a TaskRegistry with the pending tasks "a"
    Then waiting 0 and 0.01 seconds for it says that it is not idle, awaiting too
    When one thread waits for it, one awaits it, and then its tasks end
    Then both are told that it is idle
    And waiting for it when it is idle returns at once

  Scenario Outline: Waiting <how> has no timeout
    Given a TaskRegistry with the pending tasks "a"
    When a thread waits for it <how>
    Then it would have waited forever

    Examples:
      | how                          |
      | without a timeout            |
      | for infinity                 |
      | for more than a lock accepts |

  Scenario: A negative timeout is over at once
    Given a TaskRegistry with the pending tasks "a"
    Then waiting -1 and -0.01 seconds for it says that it is not idle, awaiting too

  Scenario Outline: A timeout of <timeout> is refused, also by an idle registry
    Given a TaskRegistry
    Then waiting for it with a timeout of <timeout> raises InvalidArgumentError, awaiting too

    Examples:
      | timeout |
      | nan     |
      | True    |
      | 'soon'  |

  Scenario Outline: Discarding <what> has no effect
    Given a TaskRegistry with the pending tasks "a"
    When <what> is discarded
    Then the registry holds 1 task
    And 1 tasks came: 0 succeeded, 0 failed, 0 cancelled

    Examples:
      | what              |
      | None              |
      | a string          |
      | a list            |
      | an unknown future |

  Scenario: A wait that is given up leaves no waiter behind
    Given a TaskRegistry with the pending tasks "a"
    When a loop that awaits it is closed over the wait, and then its tasks end
    Then no error is raised

  Scenario: Idle means that the futures are resolved too
    Given a TaskRegistry
    When a task leaves whose future takes its time to be resolved
    Then it is gone from the registry at once, which is idle only after that

  Scenario: Waiting on the loop that the tasks need is refused
    When a task's own loop waits for an idle registry without awaiting
    Then BlockingCallError is raised, which says "wait_idle_async"
