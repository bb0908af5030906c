Feature: A loop that is closed, stopped or dying: a clear error or a resolved future, never a hang

  Nothing is printed, and no coroutine is left that was never awaited.

  Scenario Outline: A message for <the loop> is refused with <error>, and its function never called
    Given a bridge on <the loop>
    When a message is handed over
    Then <error> is raised, which says "<remedy>"
    And the function was never called
    And nothing is left in the registry, and asyncio reports nothing

    Examples:
      | the loop                                | error                | remedy                |
      | a loop that is closed                   | LoopUnavailableError | RxPyLangGraphBridge() |
      | a loop that never ran                   | LoopUnavailableError | RxPyLangGraphBridge() |
      | a loop that was stopped                 | LoopUnavailableError | RxPyLangGraphBridge() |
      | a loop that asyncio.run has ended       | LoopUnavailableError | RxPyLangGraphBridge() |
      | a loop of its own, stopped by a run     | LoopUnavailableError | from inside           |
      | a loop of its own, that stops meanwhile | LoopUnavailableError | from inside           |
      | a loop of its own, that is closed       | BridgeClosedError    | make a new one        |

  @tdd_expected_fail @tolerates:call
  Scenario: Plain asyncio: the future of a message for a stopped loop is never resolved
    Given a naive bridge whose loop was stopped
    When a message is handed over
    Then its future is resolved, even if only when that loop is closed

  @tdd_expected_fail @tolerates:call
  Scenario: Plain asyncio: the coroutine of a message for a closed loop is never awaited
    Given a naive bridge whose loop was closed
    When a message is handed over
    Then asyncio reports nothing

  Scenario Outline: Messages in flight are resolved with <error> when <the loop goes>
    Given a bridge with a run, a run that waits for its turn, and a message on its way
    When <the loop goes>
    Then each future is resolved with <error>
    And nothing is left in the registry, and asyncio reports nothing

    Examples:
      | the loop goes                       | error                              |
      | its own loop is stopped by a run    | LoopUnavailableError or cancelled  |
      | asyncio.run ends                    | LoopUnavailableError or cancelled  |

    @tolerates:wait
    Examples: asyncio reports the tasks of a loop that ends with them
      | the loop goes                       | error                              |
      | the loop that it adopted is closed  | LoopUnavailableError               |

  @tolerates:wait
  Scenario: Messages in flight on a loop that is stopped are resolved, and are in the registry until it is closed
    Given a bridge with a run, a run that waits for its turn, and a message on its way
    When the loop that it adopted is stopped
    Then each future is resolved with LoopUnavailableError
    And the registry has them all until that loop is closed
    And nothing is left in the registry, and asyncio reports nothing

  Scenario: A message handed over by a task that asyncio.run cancels at its end is refused or resolved
    Given a bridge on a loop that asyncio.run is about to end
    When tasks hand over messages while they are being cancelled
    Then each was refused with LoopUnavailableError, or its future is resolved
    And nothing is left in the registry, and asyncio reports nothing

  Scenario: Threads that keep sending messages to a loop that ends all get the error
    Given a bridge on a loop that asyncio.run is about to end
    When 4 threads hand over messages until each is refused
    Then each was refused with LoopUnavailableError, or its future is resolved
    And nothing is left in the registry, and asyncio reports nothing
