Feature: What runs are doing can be seen, and chosen runs cancelled

  Scenario: A snapshot distinguishes running, queued, waiting for a thread and cancelling
    Given an open bridge on its own loop with max_concurrency=2
    When 1 message goes to a waiting graph on the thread "a", and 2 more behind it
    And a run that cleans up slowly is cancelled
    And 1 message without a thread goes to a waiting graph
    Then the snapshot tells the states
      """
      running waiting_for_thread waiting_for_thread cancelling queued
      """
    And it tells the id of each message, in order
    And those that run have made 1 attempt, and the others none
    And none has waited for longer than it is old, and those that wait have waited all their age

  Scenario: A run that was given up, and that continues, is cancelling
    Given an open bridge on its own loop
    When a run that swallows its cancellation is cancelled, and its future is resolved
    Then the snapshot tells the states
      """
      cancelling
      """

  Scenario Outline: A snapshot names the active node of <what>
    Given an open bridge on its own loop
    When <what> is at work
    Then the snapshot tells the node <node>

    Examples:
      | what                              | node             |
      | a graph of one async node         | "wait"           |
      | a graph of one sync node          | "block"          |
      | a graph within a graph            | "outer\|wait"    |
      | a graph within a graph of no saver's threads, called by a node | "call\|wait" |
      | a graph of two nodes at once      | "block, wait"    |
      | a stream of a graph with one node | "wait"           |
      | a function                        | None             |

  Scenario: The attempts at a message are counted
    Given an open bridge on its own loop
    When a graph fails 2 times, is retried, and is at work again
    Then the snapshot tells attempt 3

  Scenario: Without a snapshot, runs do no work for one
    Given an open bridge on its own loop
    When 20 messages are answered by a graph, without a snapshot
    Then the tasks of the loop were looked through 0 times
    When 5 messages wait in a graph, and a snapshot is taken
    Then the tasks of the loop were looked through 1 time

  Scenario Outline: The error of a run whose time is over names the node that it was in: <what>, <options>
    Given an open bridge on its own loop
    When <what> is at work until its time is over, with <options>
    Then its error names the node <node>

    Examples:
      | what                              | options                                    | node           |
      | a graph of one async node         | timeout=30                                 | "wait"         |
      | a graph of one sync node          | timeout=TimeLimits(run=30)                 | "block"        |
      | a graph within a graph            | deadline=30                                | "outer\|wait"  |
      | a graph within a graph            | timeout=30, retry=1                        | "outer\|wait"  |
      | a graph of two nodes at once      | timeout=30                                 | "block, wait"  |
      | a stream of a graph with one node | timeout=TimeLimits(first_chunk=30)         | "wait"         |
      | a function                        | timeout=30                                 | None           |

  Scenario: A run whose time is over in the pause between two attempts was in no node
    When in virtual time a graph fails, and its run's time is over in the pause before the next attempt
    Then its error names the node None

  Scenario: Runs whose time is over at once share one look for the nodes that they were in
    When in virtual time 50 messages wait in a graph until their time is over
    Then the tasks of the loop were looked through 1 time
    And their errors name the node "wait"

  Scenario: Chosen runs are cancelled, the others continue
    Given an open bridge on its own loop
    When 3 messages wait in a graph on the threads "a, b, a"
    Then cancelling what is on the thread "a" cancels 2 runs
    And the run on the thread "b" is answered

  Scenario: Runs are chosen by the node that they are at
    Given an open bridge on its own loop
    When 2 graphs are at different nodes
    Then cancelling those at the node "wait" cancels the first run alone

  Scenario: The choice is made without the lock
    Given an open bridge on its own loop
    When 2 messages wait in a graph on the threads "a, b"
    Then the choice may send messages, take snapshots in other threads, and cancel

  Scenario Outline: <What> that chooses cancels nothing
    Given an open bridge on its own loop
    When 2 messages wait in a graph on the threads "a, b"
    Then cancelling by <what> raises <error>, and cancels nothing

    Examples:
      | What                               | what                               | error            |
      | A function that fails at the last  | a function that fails at the last  | ZeroDivisionError |
      | An async function                  | an async function                  | InvalidTypeError |
      | A name                             | a name                             | InvalidTypeError |

  @once
  Scenario: A snapshot during a crowd of starts and ends has no run twice, and no impossible one
    Given an open bridge on its own loop with max_concurrency=4
    When 4 threads send 200 messages each while 2 others take snapshots
    Then every snapshot was in order, and no run went back to an earlier state

  Scenario: Python 3.13 without the GIL looks into no other thread: it might crash
    Given a Python whose threads cannot look into each other
    And an open bridge on its own loop
    When a graph of one async node is at work
    Then the snapshot tells the node None
    And no frame of its thread is read for its stack, which names its task
    And a snapshot that is taken on the loop tells the node "wait"
