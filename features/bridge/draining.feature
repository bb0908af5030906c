Feature: close(drain_after=...): graphs that save checkpoints stop between supersteps, and continue later

  @tdd_expected_fail
  Scenario: A run that is only cancelled begins its node again when it continues
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run waits in "last", and the bridge is closed without time to drain
    And another bridge is sent None on that thread
    Then it ends, and each node has begun exactly once

  Scenario Outline: A run in "<node>" is drained, and None continues it: <saver>, <home> loop, durability="<durability>"
    Given an open bridge on <home> loop
    And stages with an <saver>
    When a run with durability="<durability>" waits in "<node>", and the bridge is drained
    Then the run is drained, and the report names its checkpoint
    When another bridge is sent None on that thread
    Then it ends, and each node has run exactly once

    Examples:
      | node  | saver            | durability | home       |
      | first | InMemorySaver    | async      | its own    |
      | first | InMemorySaver    | async      | an adopted |
      | inner | InMemorySaver    | async      | its own    |
      | inner | InMemorySaver    | exit       | its own    |
      | after | InMemorySaver    | sync       | its own    |
      | right | InMemorySaver    | async      | its own    |
      | sync  | InMemorySaver    | async      | its own    |
      | sync  | InMemorySaver    | exit       | an adopted |

  Scenario Outline: A subgraph with checkpointer=<checkpointer> is not stopped where it could not continue
    Given an open bridge on its own loop
    And stages with an InMemorySaver, whose subgraph has checkpointer=<checkpointer>
    When a run with durability="async" waits in "inner", and the bridge is drained
    Then the run is drained, and "<ran>" have run
    When another bridge is sent None on that thread
    Then it ends, and each node has run exactly once

    Examples:
      | checkpointer | ran                |
      | None         | first inner        |
      | True         | first inner        |
      | False        | first inner after  |

  Scenario: A run that ends by itself when it is asked has completed
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run with durability="async" waits in "last", and the bridge is drained
    Then the run is completed, and the report says "0 cancelled, 1 completed, 0 failed, 0 stuck"

  Scenario: Without drain_after, runs end by themselves
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run waits in "first", and the bridge is closed with time to drain
    Then the run is completed, and the report says "0 cancelled, 1 completed, 0 failed, 0 stuck"

  Scenario: Graphs are asked after some of the time
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run waits in "first" until it is told, and the bridge is closed with drain_after=0.05
    Then the run is drained, and the report names its checkpoint

  Scenario: Without a checkpointer, a run continues to its end
    Given an open bridge on its own loop
    And stages without a saver
    When a run waits in "first", and the bridge is drained
    Then the run is completed, and the report says "0 cancelled, 1 completed, 0 failed, 0 stuck"

  Scenario Outline: A graph whose ainvoke <is> continues to its end
    Given an open bridge on its own loop
    And stages with an InMemorySaver, whose ainvoke <is>
    When a run waits in "first", and the bridge is drained
    Then the run is completed, and the report says "0 cancelled, 1 completed, 0 failed, 0 stuck"

    Examples:
      | is                           |
      | takes no control             |
      | takes none, without a hash   |
      | has no signature             |

  Scenario: A graph that is bound to a control of its owner is stopped by its owner alone
    Given an open bridge on its own loop
    And stages with an InMemorySaver, bound to a control
    When a run waits in "first", and the bridge is drained
    Then the run is completed, and the report says "0 cancelled, 1 completed, 0 failed, 0 stuck"

  Scenario: A run that does not stop by the deadline is cancelled
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run waits in "last" forever, and the bridge is drained for 0.1 s
    Then the run is cancelled, and the report says "1 cancelled, 0 completed, 0 failed, 0 stuck"

  Scenario: A timeout that is over before drain_after is the end all the same
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run waits in "first", and the bridge is closed within 0.1 s, with drain_after=0.5
    Then the run is cancelled, and the report says "1 cancelled, 0 completed, 0 failed, 0 stuck"
    And its graph was not asked to stop

  Scenario: A run that does not end even then is named as stuck
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run waits in "sync" forever, and the bridge is drained for 0.1 s
    Then the run is stuck, and the report names the node

  Scenario Outline: A message whose run has not begun is <status>, and can be sent again: <why>
    Given an open bridge on its own loop with max_concurrency=1
    And stages with an InMemorySaver
    When 3 messages wait <why>, and the bridge is drained
    Then each of the 3 is "<status>", and the error says that it has not begun
    And the report has 1 that is drained and 3 that have not begun
    When another bridge is sent these 3 messages again
    Then each is answered

    Examples:
      | status   | why                              |
      | rejected | for a slot                       |
      | rejected | for their thread                 |

  @once
  Scenario: 10,000 messages that have not begun are all accounted for
    Given an open bridge on its own loop with max_concurrency=1
    And stages with an InMemorySaver
    When 10000 messages wait for their thread, and the bridge is drained
    Then each of the 10000 is "rejected", and the error says that it has not begun
    And the report has 1 that is drained and 10000 that have not begun

  Scenario: A message that a node waits for is answered, and then the node's run is drained
    Given an open bridge on its own loop
    When a node waits for what another graph with a saver answers, and the bridge is drained
    Then what it waits for is completed, and its own run is drained
    And None continues that run behind the node

  Scenario: No retry begins after a drain, also while the bridge is still open
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run with retry=3 waits in "first", and is asked to drain
    Then it is interrupted, and "first" have run
    And another graph is still answered, and a message to this one does not begin

  Scenario: A node that asks to stop, stops its own run alone
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When one run asks to stop, and another waits beside it
    Then the first one is interrupted at its checkpoint, and the other one completes

  Scenario: An answer is taken before its run stops, and its question is not asked again
    Given an open bridge on its own loop
    And stages with a saver that waits before it reads
    When a question is answered, and the bridge is drained before the graph has begun
    Then the run is completed, and the question was asked once, and answered

  Scenario: A message whose graph has not begun is drained with its input saved
    Given an open bridge on its own loop
    And stages with a saver that waits before it reads
    When a message is sent, and the bridge is drained before the graph has begun
    Then the run is drained, and "" have run
    When another bridge is sent None on that thread
    Then it ends, and each node has run exactly once

  Scenario: A checkpoint that cannot be read does not keep the run from being drained
    Given an open bridge on its own loop
    And stages with a saver that cannot be read after the run
    When a run waits in "first", and the bridge is drained
    Then the run is drained without the id of its checkpoint, and its error has the reason

  Scenario Outline: A stream that is drained ends with the error, once all its runs have: <operator>, errors="<errors>", ordered=<ordered>
    Given an open bridge on <home> loop
    And stages with an InMemorySaver
    When 3 runs of <operator> with errors="<errors>", ordered=<ordered> wait in "first", and the bridge is drained
    And the source emits one more
    Then all 3 are drained, and the stream has ended with an error after them

    Examples:
      | operator | errors | ordered | home       |
      | invoke   | raise  | False   | its own    |
      | invoke   | emit   | False   | its own    |
      | invoke   | skip   | False   | its own    |
      | invoke   | emit   | True    | its own    |
      | stream   | raise  | False   | its own    |
      | stream   | emit   | True    | an adopted |

  Scenario: The chunks of astream end with the error
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a reader of astream is at the chunk of "first", and the bridge is drained
    Then RunDrainedError is raised at its end, behind the chunks of "first"

  Scenario: aclose on the loop that the runs need drains them
    Given an open bridge on an adopted loop
    And stages with an InMemorySaver
    When a run waits in "first", and aclose is awaited on that loop with drain_after=0
    Then the run is drained, and the report names its checkpoint

  @once
  Scenario: While 10,000 messages are turned away, the loop runs other callbacks
    Given an open bridge on its own loop with max_concurrency=1
    And stages with an InMemorySaver
    When 10000 messages wait for their thread, and the run before them ends while they are turned away
    Then it is drained before the last of them has an error

  @once @unmeasured
  Scenario Outline: Wherever a run is when it is asked, each of its nodes runs exactly once: <saver>
    Given an open bridge on an adopted loop
    And stages with an <saver>
    When runs are drained after 0 to <steps> steps of the loop, and go on in another bridge
    Then each node of each run has run exactly once, and some runs were drained

    Examples:
      | saver            | steps |
      | InMemorySaver    | 80    |
      | AsyncSqliteSaver | 200   |

  @once
  Scenario: Wherever the run of an answer is when it is asked to stop, the answer is taken exactly once
    Given an open bridge on an adopted loop
    And stages with an InMemorySaver
    When runs of answers are drained after 0 to 60 steps of the loop, and go on in another bridge
    Then each answer was taken exactly once, and some runs were drained

  Scenario: Two threads that close at once both name the run
    Given an open bridge on its own loop
    And stages with an InMemorySaver
    When a run waits in "first", and 2 threads drain the bridge
    Then both reports name the run as drained

  Scenario Outline: <close>(drain_after=<value>) is refused, and nothing is closed
    Given an open bridge on its own loop
    When its <close> is called with drain_after=<value>
    Then InvalidArgumentError is raised, which says "drain_after must be a number of seconds from 0"
    And the bridge answers the next message

    Examples:
      | close  | value |
      | close  | -1    |
      | close  | "now" |
      | close  | nan   |
      | aclose | nan   |
