@once
Feature: keep_checkpoints and expire_threads: the checkpoints of a thread do not grow without a bound

  # -- how much is kept --------------------------------------------------------------------------

  Scenario Outline: After <count> runs a thread takes no more room than after 10: <saver>, keep_checkpoints=<keep>
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an <saver>
    When <count> runs of one thread are answered, with keep_checkpoints=<keep>
    Then the saver keeps no more of the thread than after 10 runs
    And each run has continued from the one before it

    @tdd_expected_fail
    Examples: LangGraph's way
      | saver         | keep | count |
      | InMemorySaver | None | 100   |

    Examples:
      | saver            | keep | count |
      | InMemorySaver    | 1    | 1000  |
      | InMemorySaver    | 7    | 50    |
      | AsyncSqliteSaver | 1    | 150   |
      | AsyncSqliteSaver | 7    | 50    |

    @postgresql
    Examples: PostgreSQL
      | saver              | keep | count |
      | AsyncPostgresSaver | 1    | 50    |
      | AsyncPostgresSaver | 7    | 50    |

  Scenario Outline: The latest checkpoints are there, and all that belongs to them: <saver>
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an <saver>
    When 5 runs of one thread are answered, with keep_checkpoints=9
    Then the history of the thread is the same as that of a thread with all checkpoints, for 9 checkpoints
    And a run that goes back to the oldest of them is answered as on that other thread

    Examples:
      | saver            |
      | InMemorySaver    |
      | AsyncSqliteSaver |

    @postgresql
    Examples: PostgreSQL
      | saver              |
      | AsyncPostgresSaver |

  Scenario Outline: With keep_checkpoints=0 an answered thread is gone: <saver>
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an <saver>
    When 3 runs of one thread are answered, with keep_checkpoints=0
    Then the saver keeps nothing, and each run has begun anew

    Examples:
      | saver            |
      | InMemorySaver    |
      | AsyncSqliteSaver |

    @postgresql
    Examples: PostgreSQL
      | saver              |
      | AsyncPostgresSaver |

  Scenario Outline: Other threads, and other ways to run the thread, are left alone: <saver>
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an <saver>
    When a thread has 3 runs with all checkpoints, and another one has 3 with keep_checkpoints=1
    Then the first thread has what 3 runs save

    Examples:
      | saver            |
      | InMemorySaver    |
      | AsyncSqliteSaver |

  Scenario Outline: Every call and operator has keep_checkpoints: <way>
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an InMemorySaver
    When 3 messages to a thread go through <way>, with keep_checkpoints=1
    Then 1 checkpoint of the thread is kept, and it has counted 3

    Examples:
      | way                  |
      | create_future_task   |
      | submit               |
      | invoke               |
      | stream               |
      | astream              |
      | operators.concat_map |

  Scenario: 60 threads at once keep 1 checkpoint each
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an AsyncSqliteSaver
    When 60 threads get 3 messages each, with keep_checkpoints=1
    Then each of the 60 keeps 1 checkpoint, and has counted 3

  # -- what may be continued ---------------------------------------------------------------------

  Scenario Outline: A thread that <end> is left as it is, and is continued: <saver>
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an <saver>
    When a run of a thread <end>, with keep_checkpoints=1
    Then nothing of the thread was deleted
    When it is continued, with keep_checkpoints=1
    Then it is answered as without keep_checkpoints, and 1 checkpoint of the thread is kept

    Examples:
      | end                    | saver            |
      | asks                   | InMemorySaver    |
      | asks in a subgraph     | InMemorySaver    |
      | stops at a breakpoint  | InMemorySaver    |
      | fails                  | InMemorySaver    |
      | is cancelled           | InMemorySaver    |
      | exceeds its time limit | InMemorySaver    |
      | asks                   | AsyncSqliteSaver |
      | fails                  | AsyncSqliteSaver |

    @postgresql
    Examples: PostgreSQL
      | end                | saver              |
      | asks               | AsyncPostgresSaver |
      | asks in a subgraph | AsyncPostgresSaver |
      | fails              | AsyncPostgresSaver |

  Scenario Outline: A run is rolled back to a thread of which 1 checkpoint is kept: <saver>
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an <saver>
    When a run with keep_checkpoints=1 is answered, the next one is rolled back in its middle, and a third one is answered
    Then the thread has counted 2, and 1 checkpoint of the thread is kept

    Examples:
      | saver            |
      | InMemorySaver    |
      | AsyncSqliteSaver |

    @postgresql
    Examples: PostgreSQL
      | saver              |
      | AsyncPostgresSaver |

  # -- when it is deleted ------------------------------------------------------------------------

  Scenario: The result is not delayed, and the thread's next run begins when all is deleted
    Given an open bridge on its own loop
    And a graph whose saver deletes when it may
    When a run is answered, a second message waits on the thread, and another thread gets one
    Then the first and the other are answered, and the second begins when the saver has deleted

  Scenario Outline: <end> waits until all is deleted
    Given an open bridge on its own loop
    And a graph whose saver deletes when it may
    When a run is answered, and <end> is called while the saver deletes
    Then that returns when the saver has deleted, and reports nothing as stuck

    Examples:
      | end           |
      | cleanup_tasks |
      | close         |

  Scenario: A saver that fails to delete harms no run, and is asked again after the next
    Given an open bridge on its own loop
    And a graph whose saver deletes when it may
    When a run is answered, and its saver fails to delete
    Then a warning names the thread, and the next run deletes

  # -- refusals ----------------------------------------------------------------------------------

  Scenario Outline: What cannot be done is refused at the call: <what>, keep_checkpoints=<keep>
    Given an open bridge on its own loop
    When <what> gets a message with keep_checkpoints=<keep>
    Then <error> is raised, which says "<words>"

    Examples:
      | what                      | keep  | error                | words                                     |
      | a graph without a saver   | 1     | InvalidArgumentError | compile the graph with a checkpointer     |
      | an async function         | 1     | InvalidArgumentError | compile the graph with a checkpointer     |
      | a graph with a bare saver | 2     | InvalidArgumentError | AsyncSqliteSaver or AsyncPostgresSaver    |
      | a graph with a bare saver | 1     | InvalidArgumentError | use 1 if that has aprune                  |
      | a graph with a bare saver | 0     | InvalidArgumentError | has no adelete_thread                     |
      | a graph with deltas       | 1     | InvalidArgumentError | is rebuilt from earlier checkpoints       |
      | a graph with a saver      | -1    | InvalidArgumentError | keep_checkpoints must be                  |
      | a graph with a saver      | True  | InvalidArgumentError | keep_checkpoints must be                  |
      | a graph with a saver      | "all" | InvalidArgumentError | keep_checkpoints must be                  |

  Scenario: A graph with deltas is answered with keep_checkpoints=0, and a saver of another class prunes by itself
    Given an open bridge on its own loop
    When a graph with deltas is to keep 0 checkpoints of its thread, and one with a pruning saver 1
    Then both are answered, and the pruning saver was told to keep the latest checkpoint of the thread

  # -- threads that are not used ------------------------------------------------------------------

  Scenario Outline: Threads that were not used for long are deleted, unless they can be continued: <saver>
    Given an open bridge on <home> loop
    And a graph with subgraphs whose threads are in an <saver>
    When threads are answered, ask, stop at a breakpoint, fail and are cut off, and those older than 3600 s expire
    Then none is deleted
    When those older than 0 s expire
    Then the answered ones are deleted, and no other
    When those older than 0 s expire, unfinished ones as well
    Then the others are deleted, and the saver keeps nothing

    Examples:
      | saver            | home       |
      | InMemorySaver    | its own    |
      | InMemorySaver    | an adopted |
      | AsyncSqliteSaver | its own    |

    @postgresql
    Examples: PostgreSQL
      | saver              | home    |
      | AsyncPostgresSaver | its own |

  Scenario: A thread that is in use expires after its run, if it is still old enough
    Given an open bridge on its own loop
    And a graph with subgraphs whose threads are in an InMemorySaver
    When threads older than 0 s expire while a run of one of them is in its middle
    Then that thread is deleted after its run

  Scenario Outline: expire_threads refuses <what>
    Given an open bridge on its own loop
    When expire_threads is called with <what>
    Then <error> is raised, which says "<words>"

    Examples:
      | what                      | error                | words                                 |
      | a graph without a saver   | InvalidArgumentError | compile the graph with a checkpointer |
      | a graph with a bare saver | InvalidArgumentError | has no adelete_thread                 |
      | a negative age            | InvalidArgumentError | older_than must be                    |
