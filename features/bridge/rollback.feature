Feature: multitask_strategy="rollback": a thread is what it was before the run that is cancelled

  @tdd_expected_fail
  Scenario: A run that is only cancelled leaves half of its work in the thread
    Given an open bridge on its own loop
    And a thread in an InMemorySaver, on which a graph has run
    When a run waits in its last node, and a message with multitask_strategy="interrupt" follows
    Then that message finds the thread as it was before the run

  Scenario Outline: A run is rolled back in <place>: in memory, durability="<durability>"
    Given an open bridge on <home> loop
    And a thread in an InMemorySaver, on which a graph has run
    When a run waits in <place> with durability="<durability>", and a message with multitask_strategy="rollback" follows
    Then that message finds the thread as it was before the run
    And the thread answers as if that run had never been

    Examples:
      | place                   | durability | home       |
      | its first node          | async      | its own    |
      | a node of its subgraph  | async      | its own    |
      | its last node           | async      | its own    |
      | its last node           | async      | an adopted |
      | its last node           | sync       | its own    |
      | its last node           | exit       | its own    |
      | one of parallel nodes   | async      | its own    |
      | a node with its answer  | async      | its own    |
      | a node with its answer  | exit       | its own    |
      | a sync node             | async      | its own    |
      | a node that fails then  | async      | its own    |
      | a node that goes on     | async      | its own    |

  Scenario Outline: A run is rolled back in <place>: <saver>
    Given an open bridge on its own loop
    And a thread in an <saver>, on which a graph has run
    When a run waits in <place> with durability="async", and a message with multitask_strategy="rollback" follows
    Then that message finds the thread as it was before the run
    And the thread answers as if that run had never been

    Examples: SQLite
      | saver            | place                   |
      | AsyncSqliteSaver | a node of its subgraph  |
      | AsyncSqliteSaver | its last node           |
      | AsyncSqliteSaver | one of parallel nodes   |
      | AsyncSqliteSaver | a node with its answer  |

    @postgresql
    Examples: PostgreSQL
      | saver              | place                   |
      | AsyncPostgresSaver | a node of its subgraph  |
      | AsyncPostgresSaver | its last node           |
      | AsyncPostgresSaver | one of parallel nodes   |
      | AsyncPostgresSaver | a node with its answer  |

  Scenario Outline: The first run of a thread is rolled back: <saver>
    Given an open bridge on its own loop
    And a new thread in an <saver>
    When a run waits in its last node with durability="async", and a message with multitask_strategy="rollback" follows
    Then that message finds the thread as it was before the run

    Examples:
      | saver            |
      | InMemorySaver    |
      | AsyncSqliteSaver |

    @postgresql
    Examples: PostgreSQL
      | saver              |
      | AsyncPostgresSaver |

  Scenario Outline: Wherever a run is when it is rolled back, the thread is as before it, or it has ended: <saver>
    Given an open bridge on an adopted loop
    And a thread in an <saver>, on which a graph has run
    When runs are rolled back after 0 to 60 steps of the loop
    Then each has ended, or the thread was as before it

    Examples:
      | saver            |
      | InMemorySaver    |
      | AsyncSqliteSaver |

    @postgresql
    Examples: PostgreSQL
      | saver              |
      | AsyncPostgresSaver |

  Scenario Outline: A run that is cancelled while LangGraph saves what it did ends when that is saved
    Given an open bridge on an adopted loop
    When a run is cancelled while LangGraph saves what it did, by <way>
    Then it has ended when that is saved

    @tdd_expected_fail
    Examples: plain LangGraph
      | way      |
      | its task |

    Examples: on a bridge
      | way        |
      | its future |

  Scenario Outline: A run that is cancelled does not wait for a task of its node's own: <what>
    Given an open bridge on its own loop
    When a run is cancelled whose node has begun a task by itself, of <what>
    Then the run has left the registry while the task goes on

    Examples:
      | what                |
      | a coroutine         |
      | compiled code       |

  Scenario: A run that was not sent with "rollback" is not interrupted by a message that is
    Given an open bridge on its own loop
    And a thread in an InMemorySaver, on which a graph has run
    When a run with multitask_strategy="enqueue" waits, and a message with multitask_strategy="rollback" follows
    Then the message is rejected with the words "which was not sent with 'rollback'", and the run is answered

  Scenario: Where nothing is saved, "rollback" is "interrupt"
    Given an open bridge on its own loop
    When a function waits on a thread, and another message with multitask_strategy="rollback" follows
    Then the function's run is interrupted, and the message is answered

  Scenario: A message that wants what could not be rolled back is not begun
    Given an open bridge on its own loop
    And a thread in an InMemorySaver, on which a graph has run
    When a run waits in a sync node, its saver fails, and 2 messages with multitask_strategy="rollback" follow
    Then the second of the 2 has an error that says "could not be rolled back", and why

  Scenario: A saver that cannot roll back is refused before anything runs
    Given an open bridge on its own loop
    When a graph with a saver of another class gets a message with multitask_strategy="rollback"
    Then InvalidArgumentError is raised, which says "AsyncSqliteSaver or AsyncPostgresSaver, not in"
