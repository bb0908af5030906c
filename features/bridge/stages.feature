Feature: A result whose status is not ok passes through later stages, and runs nothing

  @tdd_expected_fail
  Scenario: Plain LangGraph: the None of a failed approval releases the order
    Given an order that waits at an interrupt for its approval
    When its approval fails, and its result goes on to the order's graph by plain "ainvoke"
    Then the order has not been released

  Scenario: A failed approval does not release the order that waits for it
    Given an open bridge on its own loop
    And an order that waits at an interrupt for its approval
    When its approval fails, and its result goes on to the order's graph by invoke
    Then the order has not been released
    And the result of the approval arrives at the end of the pipeline

  Scenario Outline: A result that was <status> passes through a later invoke with errors="<policy>": <outcome>
    Given an open bridge on its own loop
    When a result that was <status> goes through invoke with errors="<policy>", among others
    Then <outcome>, and the graph ran on none but the others

    Examples:
      | status      | policy | outcome                             |
      | error       | raise  | the stream ends with its error      |
      | error       | emit   | that very result is emitted         |
      | error       | skip   | it is logged with its error         |
      | timed_out   | raise  | the stream ends with its error      |
      | timed_out   | emit   | that very result is emitted         |
      | timed_out   | skip   | it is logged with its error         |
      | cancelled   | raise  | the stream ends with its error      |
      | cancelled   | emit   | that very result is emitted         |
      | cancelled   | skip   | it is logged with its error         |
      | rejected    | raise  | the stream ends with its error      |
      | rejected    | emit   | that very result is emitted         |
      | rejected    | skip   | it is logged with its error         |
      | interrupted | raise  | that very result is emitted         |
      | interrupted | emit   | that very result is emitted         |
      | interrupted | skip   | that very result is emitted         |

  Scenario Outline: The future of a result that was <status> resolves with errors="<policy>" as that of its own run did
    Given an open bridge on its own loop
    When create_future_task gets a result that was <status>, with errors="<policy>"
    Then the future <resolves>, and nothing ran

    Examples:
      | status      | policy | resolves                |
      | error       | raise  | raises its error        |
      | error       | emit   | returns that result     |
      | timed_out   | raise  | raises its error        |
      | rejected    | raise  | raises its error        |
      | cancelled   | raise  | is cancelled            |
      | cancelled   | emit   | returns that result     |
      | interrupted | raise  | returns that result     |
      | interrupted | emit   | returns that result     |

  Scenario Outline: A message with status "<status>" and no exception is a failure all the same
    Given an open bridge on its own loop
    When a message made with the status <status> goes through invoke with errors="raise"
    Then the stream has ended with a <error>

    Examples:
      | status    | error             |
      | error     | RunError          |
      | timed_out | RunTimeoutError   |
      | cancelled | RunCancelledError |
      | rejected  | RunRejectedError  |

  Scenario: With ordered=True, failed results keep their places
    Given an open bridge on its own loop
    When 200 results of which every third failed go through invoke with ordered=True
    Then they are emitted in their order, and the graph ran on the others alone

  Scenario: A failed result does not overtake the run before it on its thread
    Given an open bridge on its own loop
    When a failed result follows a message that still runs on its thread, into the same invoke
    Then the result is emitted after that run's, once the gate opens

  Scenario: A thread_id function is not called for a failed result
    Given an open bridge on its own loop
    When a failed result goes through invoke with a thread_id function of the content
    Then the function was asked about the others alone, and the result kept its thread

  Scenario: With max_pending, failed results release the room that they waited for
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2
    When 50 failed results go through invoke, from a thread of their own
    Then all 50 are emitted, and the bridge answers the next message

  Scenario Outline: <Kind> in a later stage is not called for a failed result
    Given an open bridge on its own loop
    When failed and good results go through invoke of <kind>
    Then it has answered the good ones alone, and the failed ones came through

    Examples:
      | Kind           | kind           |
      | An agent       | an agent       |
      | An agent pool  | an agent pool  |
