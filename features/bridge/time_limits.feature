Feature: Each part of a run has a time limit of its own, and its error says which one it was

  @tdd_expected_fail
  Scenario: With a timeout for the run alone, a message behind a stuck run has no answer
    Given an open bridge on its own loop
    When a run blocks its thread, and a message with timeout=0.05 waits behind it
    Then the message is answered, while the run still blocks

  Scenario: With a deadline, a message behind a stuck run is answered
    Given an open bridge on its own loop
    When a run blocks its thread, and a message with deadline=0.05 waits behind it
    Then the message is answered, while the run still blocks
    And it has timed out by "deadline", with the words "0.05 s; it has not begun"

  Scenario Outline: <what>: <limit>
    Given an open bridge on <home> loop
    When <kind> is sent to by <entry>, with <options>
    Then it has timed out by "<limit>", with the words "<words>"
    And nothing of it is left when everything may end

    Examples:
      | what                          | kind                             | entry              | options                                                 | limit       | words                                | home       |
      | A run that takes too long     | a waiting graph                  | create_future_task | timeout=0.05                                            | attempt     | did not end within 0.05 s            | its own    |
      | A run that takes too long     | a waiting graph                  | create_future_task | timeout=TimeLimits(attempt=0.05)                        | attempt     | did not end within 0.05 s            | its own    |
      | Both are set                  | a waiting graph                  | create_future_task | timeout=TimeLimits(attempt=9, run=0.05), deadline=9     | run         | within 0.05 s of its beginning       | its own    |
      | Both are set                  | a waiting async function         | create_future_task | timeout=9, deadline=0.05                                | deadline    | within its deadline of 0.05 s        | an adopted |
      | A node that blocks a thread   | a graph with a blocking sync node| create_future_task | deadline=0.05                                           | deadline    | within its deadline of 0.05 s        | its own    |
      | A node that swallows it       | a graph that swallows cancelling | create_future_task | timeout=TimeLimits(run=0.05)                            | run         | within 0.05 s of its beginning       | its own    |
      | A cleanup that takes long     | a graph that cleans up slowly    | create_future_task | deadline=0.05                                           | deadline    | within its deadline of 0.05 s        | its own    |
      | An operator                   | a waiting graph                  | invoke             | timeout=TimeLimits(run=0.05), errors='emit'             | run         | within 0.05 s of its beginning       | its own    |
      | An operator                   | a waiting graph                  | invoke             | deadline=0.05, errors='emit'                            | deadline    | within its deadline of 0.05 s        | its own    |
      | An operator, in order         | a waiting graph                  | invoke             | deadline=0.05, errors='emit', ordered=True              | deadline    | within its deadline of 0.05 s        | its own    |
      | No chunk                      | a waiting graph                  | stream             | timeout=TimeLimits(first_chunk=0.05), errors='emit'     | first_chunk | had no chunk within 0.05 s           | its own    |
      | No further chunk              | a waiting graph                  | stream             | timeout=TimeLimits(idle=0.05), errors='emit', stream_mode='values' | idle | had no further chunk within 0.05 s | its own    |
      | A stream as a whole           | a waiting graph                  | stream             | deadline=0.05, errors='emit'                            | deadline    | within its deadline of 0.05 s        | an adopted |
      | No chunk, by a function       | a waiting graph                  | stream             | timeout=lambda message: TimeLimits(first_chunk=0.05), errors='emit' | first_chunk | had no chunk within 0.05 s | its own    |

  Scenario Outline: A message that waits too long for <what>: start
    Given an open bridge on its own loop with <bridge>
    When a run has all there is, and a message with timeout=TimeLimits(start=0.05) waits for <what>
    Then it has timed out by "start", with the words "did not begin within 0.05 s"
    And it is not begun when everything may end
    And the bridge has room for another one

    Examples:
      | what        | bridge                           |
      | its thread  | max_concurrency=8                |
      | a slot      | max_concurrency=1                |
      | room        | max_concurrency=1, max_pending=1 |

  Scenario: A message that waits too long for a place of its subscription gives its thread back
    Given an open bridge on a virtual loop
    When a message on "t" waits too long for the one place of a subscription, which another one has
    Then the next message on "t" is answered meanwhile

  Scenario Outline: A message whose time is over when the loop sees it never begins: <options>
    Given an open bridge on its own loop
    When the loop is blocked for longer than a message with <options> may wait
    Then it has timed out by "<limit>", with the words "<words>"
    And it is not begun when everything may end

    Examples:
      | options                        | limit    | words                      |
      | timeout=TimeLimits(start=0.05) | start    | did not begin within       |
      | deadline=0.05                  | deadline | 0.05 s; it has not begun   |

  Scenario: A message whose time is over when its slot is free never begins
    Given an open bridge on its own loop with max_concurrency=1
    When a run blocks the loop for longer than a message with timeout=TimeLimits(start=0.3) may wait
    Then it has timed out by "start", with the words "did not begin within"
    And it is not begun when everything may end

  Scenario: A message that is too late does not interrupt its thread
    Given an open bridge on its own loop
    When a waiting run has the thread, and a message that would interrupt it is too late
    Then it has timed out by "start", with the words "did not begin within"
    And the run that was there is answered

  Scenario: Messages that wait for look-ahead do not begin when their time is over
    Given an open bridge on a virtual loop
    When 8 runs of 1.5 s go through invoke in order, one at a time, with timeout=TimeLimits(start=0.5)
    Then the first is answered, and no run has begun that waited for longer than 0.5 s

  Scenario Outline: Room that is awaited is limited too: <options>
    Given an open bridge on <home> loop with max_concurrency=1, max_pending=1
    When a run has all there is, and a message with <options> awaits room on <loop> loop
    Then it has timed out by "<limit>", with the words "<words>"
    And it is not begun when everything may end
    And all 3 messages were counted, this one as failed

    Examples:
      | options                        | home       | loop        | limit    | words                      |
      | timeout=TimeLimits(start=0.05) | its own    | another     | start    | did not begin within       |
      | deadline=0.05                  | its own    | another     | deadline | 0.05 s; it has not begun   |
      | deadline=0.05                  | an adopted | the same    | deadline | 0.05 s; it has not begun   |

  Scenario: A run that has begun in time is not limited by the time of its start
    Given an open bridge on a virtual loop
    When a run with timeout=TimeLimits(start=2) runs for longer than that
    Then it is answered

  Scenario: Runs that have ended in time leave no timer on the loop
    Given an open bridge on its own loop
    When 20 messages are answered with timeout=TimeLimits(start=60, attempt=60, run=60), deadline=60
    Then no timer is left on the loop

  Scenario: With retry an attempt that exceeds its limit is followed by another one, until the run's limit
    Given an open bridge on a virtual loop
    When a waiting graph is retried, with timeout=TimeLimits(attempt=2, run=30)
    Then it has timed out by "run", with the words "within 30 s of its beginning"
    And it was tried more than once

  Scenario: An attempt that cleans up when the time of its run is over too is cancelled once
    When in virtual time an attempt with timeout=TimeLimits(attempt=2, run=3), which may be retried, cleans up for 1.5 s
    Then it has timed out by "run", with the words "within 3 s of its beginning"
    And its cleanup went on to its end, undisturbed

  Scenario: With retry a stream without a chunk is tried again
    Given an open bridge on a virtual loop
    When a stream has its first chunk in the second attempt, with a limit of 2 s for it
    Then it is answered by the second attempt

  Scenario: A stream is not idle while it waits for its consumer
    Given an open bridge on a virtual loop
    When a consumer takes longer for each chunk than timeout=TimeLimits(idle=2) allows
    Then all chunks and the result arrive

  Scenario: A message whose deadline is over in an ordered stream does not hold up the others
    Given an open bridge on a virtual loop
    When the first of 3 messages is stuck in an ordered stream, with deadline=2
    Then the stream consists of 0 timed_out, 1 ok, 2 ok, and completes

  Scenario: LangGraph's own time limit of a node is its run's error, as it is
    Given an open bridge on its own loop
    When a node with a TimeoutPolicy of 0.05 s waits in a run without limits
    Then its run has failed with a NodeTimeoutError, and was not cancelled

  Scenario: A child's timeout is not taken for the parent's own, whichever limit it was
    Given an open bridge on its own loop
    When a node waits for a run that exceeds its deadline of 0.05 s
    Then the node's run has failed with the child's error

  Scenario: The limits of the bridge are those of every run without its own
    Given an open bridge on its own loop with timeout=TimeLimits(run=0.05, idle=9)
    When a waiting graph is sent to by create_future_task, with name='x'
    Then it has timed out by "run", with the words "within 0.05 s of its beginning"
    And nothing of it is left when everything may end

  Scenario: A limit without a name is a TypeError, as it could be any of them
    When the code under test calls "TimeLimits(1.0)"
    Then TypeError is raised, which says "positional argument"

  Scenario Outline: <what> that is too large for a float is no limit
    Given an open bridge on its own loop
    When an async function is sent to by create_future_task, with <limit>
    Then the last message is answered

    Examples:
      | what       | limit                           |
      | A timeout  | timeout=10**400                 |
      | A run time | timeout=TimeLimits(run=10**400) |
      | A deadline | deadline=10**400                |

  Scenario Outline: <what> is refused, with the remedy
    Given an open bridge on its own loop
    When the code under test calls "<call>"
    Then InvalidArgumentError is raised, which says "<words>"
    And nothing was ever submitted to the bridge

    Examples:
      | what                    | call                                                                            | words                                              |
      | A limit of nothing      | TimeLimits(run=0)                                                               | run must be a number of seconds above 0, or None       |
      | A limit in words        | bridge.create_future_task(print, 1, timeout=TimeLimits(idle='x'))               | idle must be a number of seconds above 0, or None  |
      | A chunk where none is   | bridge.create_future_task(print, 1, timeout=TimeLimits(idle=1))                 | only streams have chunks; leave it out             |
      | A chunk of an operator  | bridge.invoke(print, timeout=TimeLimits(first_chunk=1))                         | a limit for first_chunk, and only streams          |
      | A deadline in the past  | bridge.create_future_task(print, 1, deadline=-1)                                | deadline must be a number of seconds above 0, or None  |
      | A function's limits     | bridge.create_future_task(print, 1, timeout=lambda message: TimeLimits(idle=1)) | only streams have chunks                           |
