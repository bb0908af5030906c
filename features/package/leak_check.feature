Feature: LeakCheck finds everything that a pipeline leaves behind

  Scenario Outline: <What> is found, and named
    Given a leak check that gives no time to end
    When the code under test leaves <what> behind
    Then the check reports one leak, a <kind> called "<name>", with "<detail>"

    Examples:
      | What                          | what                          | kind           | name                | detail                     |
      | A thread that goes on         | a thread that goes on         | thread         | left-alone          | released.wait()            |
      | A daemon thread that goes on  | a daemon thread that goes on  | thread         | left-alone          | released.wait()            |
      | An idle thread of a pool      | an idle thread of a pool      | thread         | left-alone_0        | work_queue.get(            |
      | A process that goes on        | a process that goes on        | process        | *stdin.read()*      | pid                        |
      | A process never waited for    | a process never waited for    | process        | *                   | ended but never waited for |
      | A task of a running loop      | a task of a running loop      | task           | *name='left-alone'* | await released.wait()      |
      | A task of a loop that stopped | a task of a loop that stopped | task           | *name='left-alone'* | await released.wait()      |
      | A coroutine never awaited     | a coroutine never awaited     | coroutine      | *forgotten          | neither awaited nor closed |
      | An entry of a registry        | an entry of a registry        | registry entry | left-alone          | state='pending'            |

    @tolerates:unseen @tolerates:never
    Examples: errors that would only be printed
      | What                           | what                           | kind            | name                 | detail      |
      | A coroutine dropped unawaited  | a coroutine dropped unawaited  | unhandled error | *was never awaited*  | ignored     |
      | An error that ended a thread   | an error that ended a thread   | unhandled error | ValueError('unseen') | ended dying |
      | An error inside a finalizer    | an error inside a finalizer    | unhandled error | ValueError('unseen') | __del__     |
      | An unretrieved error of a task | an unretrieved error of a task | unhandled error | *never retrieved*    | unseen      |

  Scenario Outline: <What> is not a leak
    Given a started leak check
    When the code under test has <what>
    Then the check reports nothing

    Examples:
      | What                                 | what                                 |
      | A thread that is just ending         | a thread that is just ending         |
      | A pool that only a cycle keeps alive | a pool that only a cycle keeps alive |
      | A thread that is just starting       | a thread that is just starting       |
      | A task that is just ending           | a task that is just ending           |
      | An entry that is just leaving        | an entry that is just leaving        |
      | A process that was waited for        | a process that was waited for        |
      | A coroutine that was closed          | a coroutine that was closed          |

  Scenario: A process is found where the system has no /proc too, by its pid
    Given a system without /proc
    And a leak check that gives no time to end
    When the code under test leaves a process that goes on behind
    Then the check reports one leak, a process called "pid *"

  Scenario: Objects from before the check are not leaks
    Given a thread, a process, a task, a coroutine and an entry of a registry
    And a started leak check
    Then the check reports nothing

  Scenario: A thread that a pattern names is not a leak, and is not waited for
    Given a started leak check that ignores "left-*"
    When the code under test leaves a thread that goes on behind
    Then the check reports nothing

  Scenario: A thread of a class of its own is called by that class too
    Given a started leak check that ignores "*(*.Monitor)"
    When the code under test leaves a thread of the class Monitor behind
    Then the check reports nothing

  Scenario: On an event loop's own thread its tasks are reported and not waited for
    Given an event loop
    When a check on that loop's own thread is left with a task and an entry of a registry
    Then the check reports a task and a registry entry

  Scenario: An error of the checked block comes first, with the leaks as its note
    When a checked block leaves a thread behind and raises an error
    Then that error arrives, with a note that names the thread

  Scenario: An error of a block that leaves nothing behind arrives as it is
    When a checked block raises an error
    Then that error arrives, without a note

  Scenario: A block that leaves a thread behind fails, and the error lists it
    When a checked block leaves a thread behind
    Then a LeakError arrives that names the thread and the remedy

  Scenario: One pattern instead of a list is refused: its "*" would ignore every leak
    Then a leak check with one pattern, or with a text as its timeout, is refused

  Scenario: A check is started once and verified once
    Given a started leak check
    Then starting it again is refused
    When the check is verified
    Then verifying it again is refused
    And the hooks it borrowed are as they were
