Feature: What happens to a message when max_pending others wait is what overflow says

  # -- who gives way

  Scenario Outline: With overflow="<policy>", of <messages> behind a run, <run> are run and <rejected> rejected
    Given an open bridge on <home> loop with max_concurrency=1, max_pending=2, overflow="<policy>"
    When a run holds the slot, and the messages <messages> arrive one after another
    And the gate opens
    Then <run> are run, and <rejected> are rejected

    Examples:
      | policy      | messages       | run   | rejected       | home       |
      | drop_newest | 1 2 3 4 5      | 1 2   | 3 4 5          | its own    |
      | drop_oldest | 1 2 3 4 5      | 4 5   | 1 2 3          | its own    |
      | latest      | 1 2 3 4 5      | 4 5   | 1 2 3          | its own    |
      | drop_oldest | a1 b2 b3       | b2 b3 | a1             | its own    |
      | latest      | a1 b2 b3       | a1 b3 | b2             | its own    |
      | latest      | a1 a2 b3 b4 a5 | b4 a5 | a1 a2 b3       | its own    |
      | latest      | a1 b2 c3       | b2 c3 | a1             | its own    |
      | drop_newest | 1 2 3          | 1 2   | 3              | an adopted |
      | drop_oldest | 1 2 3          | 2 3   | 1              | an adopted |
      | latest      | a1 b2 b3       | a1 b3 | b2             | an adopted |

  Scenario Outline: With overflow="<policy>", every order of up to 6 arrivals and starts goes as in the model
    Then every sequence of 6 steps with overflow="<policy>" goes as in the model, with room for 1 to 3

    Examples:
      | policy      |
      | error       |
      | drop_newest |
      | drop_oldest |
      | latest      |

  Scenario Outline: With overflow="<policy>", a bridge does what the model does, step by step
    Given an open bridge on its own loop with max_concurrency=2, max_pending=3, overflow="<policy>"
    Then 300 arrivals, ends and cancellations, in an order chosen by a seed, go as in the model

    Examples:
      | policy      |
      | error       |
      | drop_newest |
      | drop_oldest |
      | latest      |

  Scenario: The latest message of a thread becomes its latest again when the one behind it is cancelled
    Given an open bridge on its own loop with max_concurrency=1, max_pending=3, overflow="latest"
    When a run holds the slot, and the messages a1 b2 b3 arrive one after another
    And b3 is cancelled, and the messages c4 d5 arrive one after another
    And the gate opens
    Then b2 c4 d5 are run, and a1 are rejected

  # -- random histories

  @once
  Scenario Outline: With overflow="<policy>", random histories go as in the model of a bridge, with <bounds>
    Then 60 random histories of 40 steps go as in the model of overflow: overflow="<policy>", <bounds>

    Examples:
      | policy      | bounds                           |
      | block       | max_pending=2, max_concurrency=2 |
      | block       | max_pending=4, max_concurrency=1 |
      | error       | max_pending=3, max_concurrency=2 |
      | drop_newest | max_pending=3, max_concurrency=2 |
      | drop_oldest | max_pending=3, max_concurrency=2 |
      | latest      | max_pending=4, max_concurrency=2 |
      | latest      | max_pending=3, max_concurrency=1 |

  @once @unmeasured
  Scenario Outline: Random histories show with overflow="<policy>" that <fault>
    Given a bridge in which <fault>
    Then one of 300 random histories of 40 steps goes otherwise than in the model of overflow: overflow="<policy>", max_pending=4, max_concurrency=2

    Examples:
      | policy      | fault                                     |
      | block       | a message takes room that others wait for |
      | error       | a cancelled message keeps its room        |
      | drop_newest | a dropped message counts twice            |
      | drop_oldest | the newest of those that wait gives way   |

  # -- what is told

  Scenario: overflow="error" raises BacklogFullError, which names the bridge, the bound and the remedy
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2, overflow="error", name="web"
    When a run holds the slot, and the messages 1 2 arrive one after another
    Then the next call of create_future_task raises BacklogFullError: "the bridge web is full: max_pending=2 messages are waiting to start; send this one again later"
    And the next call of astream raises BacklogFullError: "send this one again later"
    And the bridge counts 3 submitted, 0 dropped

  Scenario Outline: A future of a message that was dropped by "<policy>" is resolved as rejected, with errors="<errors>"
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="<policy>"
    When a run holds the slot, and two messages arrive with errors="<errors>"
    Then the future of the <which> is done with <outcome>

    Examples:
      | policy      | errors | which  | outcome                                      |
      | drop_newest | raise  | second | RunDroppedError                              |
      | drop_newest | emit   | second | the status "rejected" and RunDroppedError    |
      | drop_oldest | raise  | first  | RunDroppedError                              |
      | drop_oldest | emit   | first  | the status "rejected" and RunDroppedError    |
      | latest      | raise  | first  | RunDroppedError                              |

  Scenario Outline: In <operator>, what "<policy>" rejects is <told> with errors="<errors>"
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="<policy>"
    When a run holds the slot, and 4 messages go through <operator> with errors="<errors>"
    And the gate opens
    Then the observer gets the results "<results>" and then <end>
    And the bridge counts <submitted> submitted, <dropped> dropped

    Examples: a drop by policy never ends the stream
      | operator             | policy      | errors | told     | results    | end       | submitted | dropped |
      | invoke               | drop_newest | emit   | told     | x1 x2 x3 0 | completed | 5         | 3       |
      | invoke               | drop_newest | raise  | left out | 0          | completed | 5         | 3       |
      | invoke               | drop_newest | skip   | left out | 0          | completed | 5         | 3       |
      | invoke               | drop_oldest | emit   | told     | x0 x1 x2 3 | completed | 5         | 3       |
      | invoke               | drop_oldest | raise  | left out | 3          | completed | 5         | 3       |
      | invoke               | latest      | emit   | told     | x0 x1 x2 3 | completed | 5         | 3       |
      | invoke, ordered=True | drop_newest | emit   | told     | 0 x1 x2 x3 | completed | 5         | 3       |
      | invoke, ordered=True | drop_oldest | emit   | told     | x0 x1 x2 3 | completed | 5         | 3       |
      | invoke, ordered=True | drop_oldest | raise  | left out | 3          | completed | 5         | 3       |
      | stream               | drop_newest | emit   | told     | x1 x2 x3 0 | completed | 5         | 3       |
      | stream               | drop_oldest | emit   | told     | x0 x1 x2 3 | completed | 5         | 3       |
      | stream, ordered=True | drop_oldest | emit   | told     | x0 x1 x2 3 | completed | 5         | 3       |
      | stream, ordered=True | drop_newest | emit   | told     | 0 x1 x2 x3 | completed | 5         | 3       |

    Examples: overflow="error" is a failure
      | operator | policy | errors | told                   | results    | end              | submitted | dropped |
      | invoke   | error  | emit   | told                   | x1 x2 x3 0 | completed        | 5         | 3       |
      | invoke   | error  | skip   | logged                 | 0          | completed        | 5         | 3       |
      | invoke   | error  | raise  | the end of the stream  |            | BacklogFullError | 3         | 1       |
      | stream   | error  | raise  | the end of the stream  |            | BacklogFullError | 3         | 1       |

  Scenario: A message that gives way just before it is handed over, in a cleanup, leaves nothing
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="drop_oldest"
    When a run holds the slot, and in a cleanup a message of a stream gives way as it is handed over
    Then nothing is left in flight
    And the bridge counts 3 submitted, 1 dropped

  Scenario: Messages that give way while their stream is disposed of are counted
    Given an open bridge on its own loop with max_concurrency=1, max_pending=3, overflow="drop_oldest"
    When a run holds the slot, and 3 messages of an ordered stream give way while it is disposed of
    Then nothing is left in flight
    And the bridge counts 7 submitted, 2 dropped

  Scenario: The failure of a pulled item does not give way in a later stage
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="drop_oldest"
    When a run holds the slot, a pulled item fails in the first of two stages, and a message arrives
    Then the second stage emits the failure, and the message is rejected

  Scenario: astream of a message that is dropped ends with the reason
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="drop_oldest"
    When a run holds the slot, and a message is streamed with astream, and another arrives
    Then the stream of astream ends with RunDroppedError

  # -- what it is for

  @once
  Scenario Outline: With overflow="<policy>", a flood of 5,000 messages on <where> leaves at most <bound> in memory
    Given an open bridge on its own loop with max_concurrency=1, max_pending=10, overflow="<policy>"
    When 5000 messages flood the bridge while <where>
    Then at most <bound> of the messages are still in memory, and as many entries in its queues

    Examples:
      | policy      | where                            | bound |
      | error       | a run holds the slot             | 12    |
      | drop_newest | a run holds the slot             | 12    |
      | drop_oldest | a run holds the slot             | 12    |
      | latest      | a run holds the slot             | 12    |
      | drop_oldest | a run holds the loop             | 12    |
      | latest      | a run holds the loop             | 12    |
      | drop_oldest | a run holds their thread         | 12    |
      | drop_oldest | a run holds their subscription   | 12    |

  @tdd_expected_fail @once
  Scenario: Without max_pending, a flood of 5,000 messages stays in memory
    Given an open bridge on its own loop with max_concurrency=1
    When 5000 messages flood the bridge while a run holds the slot
    Then at most 12 of the messages are still in memory, and as many entries in its queues

  Scenario Outline: With overflow="<policy>", 4 threads send 500 messages each: every one is run or rejected, once
    Given an open bridge on its own loop with max_concurrency=2, max_pending=3, overflow="<policy>"
    When 4 threads send 500 messages each, on 5 threads of the bridge
    Then each message was run or rejected, and the numbers of the bridge add up

    Examples:
      | policy      |
      | error       |
      | drop_newest |
      | drop_oldest |
      | latest      |

  Scenario Outline: With overflow="<policy>", 4 threads send into one <operator>: every message has one result
    Given an open bridge on its own loop with max_concurrency=2, max_pending=3, overflow="<policy>"
    When 4 threads send 300 messages each into one <operator> with errors="emit"
    Then each message has one result, and the numbers of the bridge add up

    Examples:
      | policy      | operator             |
      | error       | invoke               |
      | drop_newest | invoke, ordered=True |
      | drop_oldest | invoke               |
      | drop_oldest | invoke, ordered=True |
      | latest      | stream, ordered=True |
      | latest      | invoke               |

  Scenario Outline: With overflow="<policy>", nothing waits, on the loop's own thread or in a run
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="<policy>"
    When a run sends 5 messages to its bridge, and one to its own thread, without waiting for them
    Then no call was refused because it would wait

    Examples:
      | policy      |
      | drop_newest |
      | drop_oldest |
      | latest      |

  Scenario Outline: With overflow="<policy>", what results of the bridge lead to is not dropped
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2, overflow="<policy>"
    When 60 messages go through two stages of that bridge, the first with errors="emit"
    Then each result of the first stage went through the second

    Examples:
      | policy      |
      | error       |
      | drop_newest |
      | drop_oldest |
      | latest      |

  # -- at its edges

  Scenario Outline: A done-callback of a dropped run that <does> does not harm who sent the other message
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="drop_oldest"
    When a run holds the slot, and a message arrives whose done-callback <does>, and another
    And the gate opens
    Then the last message is run, and the numbers of the bridge add up

    Examples:
      | does              |
      | raises            |
      | sends a message   |
      | closes the bridge |

  Scenario: Ctrl-C in a done-callback of a dropped run is not lost
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="drop_oldest"
    When a run holds the slot, and a message arrives whose done-callback raises KeyboardInterrupt
    Then sending another one raises KeyboardInterrupt, and the numbers of the bridge add up

  Scenario: A message that was dropped and then cancelled is rejected; one that was cancelled is not dropped
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="drop_oldest"
    When a run holds the slot, and the messages 1 2 arrive one after another
    Then cancelling message 1 does nothing, and message 2 can be cancelled and makes room

  Scenario: Disposing of a subscription frees the source that waits for room which others keep
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a run holds the slot, the message 1 waits, and a source waits for room with its first one
    And the subscription is disposed
    Then the source's thread is free, and message 1 still waits

  Scenario: Disposing while a source is about to wait for room frees it, too
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a run holds the slot, the message 1 waits, and a subscription is disposed just before its source waits
    Then the source's thread is free, and message 1 still waits
