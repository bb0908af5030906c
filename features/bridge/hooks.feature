Feature: Hooks receive the events of runs, and cannot harm them

  Scenario: Hooks hear of a message from its arrival to its end
    Given an open bridge on its own loop
    And hooks that write down every event
    When a graph of two nodes streams its chunks for 1 message
    Then the events were queued, started, 2 nodes and 2 chunks, each chunk behind its node, and ended
    And they name the message, the graph, the nodes "first, second" and attempt 1, and how long each took

  Scenario Outline: A message that <what> is queued once and ends once, as <status>
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2, overflow="drop_newest"
    And hooks that write down every event
    When the hooks hear of a message that <what>
    Then its events are "<events>", and the end says <status>

    Examples:
      | what                                  | status      | events                     |
      | is answered                           | ok          | queued started node ended  |
      | fails                                 | error       | queued started node ended  |
      | is a result that passes through       | error       | queued ended               |
      | is cancelled before its start         | cancelled   | queued ended               |
      | is cancelled when it runs             | cancelled   | queued started node ended  |
      | times out                             | timed_out   | queued started node ended  |
      | is dropped                            | rejected    | queued ended               |
      | is refused because its thread is busy | rejected    | queued ended               |
      | is interrupted before its start       | interrupted | queued ended               |
      | asks                                  | interrupted | queued started node ended  |
      | comes after the close                 | rejected    | queued ended               |
      | runs when the loop stops              | cancelled   | queued started ended       |
      | comes during a cleanup                | cancelled   | queued ended               |

  Scenario Outline: Thousands of messages under faults, on a bridge with <options>: each keeps the order of events
    Given an open bridge on its own loop with <options>
    And hooks that write down every event, and raise at some
    When 4 threads send 600 messages that fail, time out, are cancelled and refused, and halfway <fault>
    Then every run was queued once, and ended once, in the order that the model allows
    And the end that the hooks were told is the one that the future tells

    Examples:
      | options                                                | fault              |
      | max_concurrency=4                                      | nothing happens    |
      | max_concurrency=4                                      | a cleanup begins   |
      | max_concurrency=4                                      | the bridge closes  |
      | max_concurrency=4                                      | the loop stops     |
      | max_concurrency=2, max_pending=4                       | a cleanup begins   |
      | max_concurrency=2, max_pending=4, overflow="error"     | the bridge closes  |
      | max_concurrency=2, max_pending=4, overflow="latest"    | nothing happens    |
      | max_concurrency=2, max_pending=4, overflow="drop_newest" | the loop stops   |
      | max_concurrency=2, max_pending=4, overflow="drop_oldest" | the bridge closes |

  Scenario Outline: A run that is <otherwise> in the middle of being <first> ends as its future does
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2, overflow="drop_oldest"
    And hooks that write down every event
    When a message is <first>, and is <otherwise> in the middle of that
    Then the hooks were told that it was <status>, once

    Examples:
      | first       | otherwise   | status      |
      | dropped     | timed out   | rejected    |
      | dropped     | interrupted | rejected    |
      | interrupted | dropped     | interrupted |
      | interrupted | timed out   | interrupted |
      | timed out   | dropped     | timed_out   |

  Scenario Outline: Hooks hear of every event of a subscription of <operator>, also when it is disposed of
    Given an open bridge on its own loop with max_concurrency=2, max_pending=3
    And hooks that write down every event
    When 40 messages go through <operator>, which is disposed of in the middle
    Then every run was queued once, and ended once, in the order that the model allows

    Examples:
      | operator                |
      | invoke                  |
      | invoke, ordered         |
      | stream                  |
      | stream, ordered         |

  Scenario Outline: A hook that raises <exception> is logged once, and changes nothing
    Given an open bridge on its own loop
    And hooks that raise <exception> at every event
    When 20 messages are streamed by a graph
    Then all 20 are answered, and the loop still runs
    And 5 errors were logged, one for each hook

    Examples:
      | exception         |
      | ValueError        |
      | CancelledError    |
      | SystemExit        |
      | KeyboardInterrupt |
      | GeneratorExit     |
      | StopIteration     |
      | NoHashError       |

  Scenario: A hook may send messages to its bridge, and cancel runs
    Given an open bridge on its own loop
    When hooks send one more message at each end, and cancel every third run at its start
    Then of 12 messages 4 were cancelled, and 12 more were sent and answered

  Scenario Outline: Messages that a hook cancels <when> do not keep <operator> from its end
    Given an open bridge on its own loop with max_concurrency=1, <options>
    When 9 messages go through <operator>, and a hook has every third one cancelled <when>
    Then 6 results and 3 cancellations are emitted, in order if it is ordered, and the stream completes
    And no message holds room any more

    Examples: before they are handed over
      | when               | operator        | options                                |
      | as it is queued    | invoke          | max_pending=9                          |
      | as it is queued    | invoke          | max_pending=9, overflow="drop_oldest"  |
      | as it is queued    | invoke, ordered | max_pending=9, overflow="drop_newest"  |
      | as it is queued    | stream, ordered | max_pending=None                       |

    Examples: while they wait for look-ahead
      | when               | operator        | options                                |
      | when all have come | invoke, ordered | max_pending=9                          |
      | when all have come | stream, ordered | max_pending=None                       |

  Scenario: A hook that waits for its own run gets an error: it would wait forever
    Given an open bridge on its own loop
    When hooks wait for the run of each event
    Then each was refused with BlockingCallError, and the message was answered

  Scenario: A context variable that is set at the start of a run is seen by its nodes, and by no other run
    Given an open bridge on its own loop
    When hooks set a context variable to the id of each message at its start
    Then the nodes of 10 runs at once see the ids of their own messages

  Scenario: Hooks are called in the threads that the documentation names, without the lock
    Given an open bridge on its own loop
    And hooks that write down every event, and need the lock in another thread
    When a graph of two nodes streams its chunks for 1 message
    Then the arrival was told in the thread that sent it, all else on the loop's thread

  Scenario: Hooks hear complete runs alone, and nothing once they are disposed of
    Given an open bridge on its own loop
    When hooks are added while a run is at work, and disposed of while another one is
    Then they heard nothing of the first run, and nothing of the second one after its start

  Scenario: Two hooks, and the same one twice, are each called until they are disposed of
    Given an open bridge on its own loop
    When two hooks are added, the first of them twice, and 3 messages are answered
    Then the first was called twice as often as the second
    When one of the first is disposed of, and 3 more are answered
    Then both were called 9 times more

  Scenario: Hooks are told how long a message has waited, and how long its run took
    When in virtual time two messages of 30 s each are sent to a bridge with one slot
    Then the hooks were told that they waited 0 s and 30 s, and took 30 s each

  Scenario Outline: <What> is refused as hooks
    Given an open bridge on its own loop
    Then adding <what> raises InvalidTypeError, which says "<says>"

    Examples:
      | What                   | what                   | says          |
      | A class                | a class                | instance      |
      | A function             | a function             | instance      |
      | An async hook          | an async hook          | called, not awaited |
      | An async generator     | an async generator     | called, not awaited |
      | A generator            | a generator            | called, not awaited |
      | An async callable      | an async callable      | called, not awaited |
      | A hook that is None    | a hook that is None    | must be a method    |
      | A hook of another name | a hook of another name | on_end is not a hook |

  Scenario: Without hooks a bridge makes no events, and without on_node it adds no callbacks
    Given an open bridge on its own loop
    When making events and callbacks is forbidden
    Then 20 messages are streamed and answered without hooks
    And 20 messages are answered with hooks that override nothing

  Scenario: A run has the same fields with hooks and without, also if the bridge is given them late
    Given an open bridge on its own loop
    When a message is answered without hooks
    And hooks are added, and another one is answered
    Then both runs have the same fields, and no longer refer to hooks

  Scenario Outline: Hooks that are added for runs in flight are told no longer wait than there was, with <others> before
    Given an open bridge on its own loop with max_concurrency=1
    And <others> on it
    When a message is in its node, one waits behind it, and hooks are added for both
    And the gate opens, and both have ended
    Then the added hooks heard "started, ended, ended", and no longer wait than since the message was sent

    Examples:
      | others                |
      | no hooks              |
      | hooks for ends alone  |
      | hooks for every event |

  Scenario: A sync node, a subgraph and a failing node are reported with their paths and errors
    Given an open bridge on its own loop
    And hooks that write down every event
    When a graph runs a sync node, then a subgraph whose second node fails
    Then the nodes were "sync ok, outer|inner ok, outer|bad error, outer error"

  Scenario: The event of a node has the attempt of its run
    Given an open bridge on its own loop
    And hooks that write down every event
    When a graph whose node fails once is retried
    Then the nodes were told with the attempts "1 2", and the end with attempt 2

  Scenario: Hooks keep no run alive
    Given an open bridge on its own loop
    When hooks that keep nothing hear of 50 runs, whose contexts are kept
    Then none of the runs is left
