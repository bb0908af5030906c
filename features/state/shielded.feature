Feature: A cancelled call has no effect: it runs to its end, and is undone, however often it is cancelled

  Scenario Outline: What a call has done is undone, although its caller is cancelled <times> more
    When a shielded call is cancelled, and <times> more during its undo
    Then in this order: done, undone, raised; its caller has CancelledError, and no task is left

    Examples:
      | times     |
      | once      |
      | 10 times  |

  Scenario: What a call does soon after its caller was cancelled twice is undone
    When a shielded call is cancelled twice before it is done
    Then in this order: done, undone, raised; its caller has CancelledError, and no task is left

  Scenario: What a call does soon after a scope of anyio was cancelled is undone
    When a shielded call is in a scope of anyio that is cancelled before it is done
    Then in this order: done, undone, raised, left; its caller has NoneType, and no task is left

  Scenario: A call that is cancelled itself is waited for, however often its caller is cancelled
    When the caller of a shielded call is cancelled four times while that cleans up
    Then in this order: told 3 times, raised; its caller has CancelledError, and no task is left

  Scenario Outline: An undo that does not end is cancelled with <who>
    When a shielded call is cancelled, and <who> again during an endless undo
    Then in this order: done, undo cancelled, raised; its caller has CancelledError, and no task is left

    Examples:
      | who                   |
      | its caller            |
      | all tasks of the loop |

  Scenario: The error of an undo reaches its caller
    When a shielded call is cancelled, and its caller during an undo that fails then
    Then in this order: done, undone, raised; its caller has KeyError, and no task is left

  Scenario Outline: Each that has cancelled takes back its own cancellation: <what>
    When a shielded call in a <what>
    Then in this order: <log>; its caller has <outcome>, and no task is left

    Examples:
      | what                                                | log                                              | outcome        |
      | timeout is undone                                   | done, undone, raised, cancelling 0               | TimeoutError   |
      | timeout is undone, and a task group cancels it too  | done, undone, raised, cancelling 1               | ExceptionGroup |
      | timeout is undone, and one around that is over too  | done, undone, raised, cancelling 1, cancelling 0 | TimeoutError   |
