Feature: lanes=state: of the runs on a thread, one is active in all processes together

  # -- two processes on one saver ----------------------------------------------------------------

  @once
  Scenario Outline: Two processes that add 1 to a thread 100 times each lose nothing: <saver>, <lanes>
    Given a thread in a saver in <saver>, and <lanes>
    When 2 processes with bridges send 100 messages to the thread each, all at once
    Then each of them was answered, and the thread has counted 200

    @tdd_expected_fail
    Examples: as without shared lanes
      | saver  | lanes    |
      | SQLite | no lanes |

    Examples: SQLite
      | saver  | lanes           |
      | SQLite | lanes in SQLite |

    @postgresql
    Examples: PostgreSQL
      | saver      | lanes               |
      | PostgreSQL | lanes in PostgreSQL |

    @valkey
    Examples: Valkey
      | saver  | lanes           |
      | SQLite | lanes in Valkey |

  @once
  Scenario Outline: The thread of a process that is killed in the middle of a run is free when its lease is over: <saver>
    Given a thread in a saver in <saver>, and lanes in <saver>
    When a process is killed while its run on the thread is in a node
    Then a message to the thread waits here until its lease is over, and is answered

    Examples: SQLite
      | saver  |
      | SQLite |

    @postgresql
    Examples: PostgreSQL
      | saver      |
      | PostgreSQL |

  @once
  Scenario Outline: A process that is suspended in a run does not write over its successor: <saver>, <lanes>
    Given a thread in a saver in <saver>, and <lanes>
    When a process is suspended while its run on the thread is in a node, a message to the thread is answered here, and the process goes on
    Then its run has ended with a LaneLostError, and the thread is as the successor left it

    @tdd_expected_fail
    Examples: as without shared lanes
      | saver  | lanes    |
      | SQLite | no lanes |

    Examples: SQLite
      | saver  | lanes           |
      | SQLite | lanes in SQLite |

    @postgresql
    Examples: PostgreSQL
      | saver      | lanes               |
      | PostgreSQL | lanes in PostgreSQL |

  # -- policies ----------------------------------------------------------------------------------

  Scenario Outline: A message with multitask_strategy="<strategy>" is rejected while another bridge has its thread
    Given 2 bridges on <home> loops that share their lanes
    When the first one has a run on a thread, and the second one gets a message to it with multitask_strategy="<strategy>"
    Then that message is rejected at once, with a ThreadBusyError that says "another process has the thread"
    When the run of the first one ends
    Then the second one answers a message to it with multitask_strategy="<strategy>"

    Examples:
      | strategy | home       |
      | reject   | its own    |
      | reject   | an adopted |
      | rollback | its own    |

  Scenario Outline: A message with multitask_strategy="interrupt" interrupts the runs of another bridge
    Given 2 bridges on <home> loops that share their lanes
    When the first one has a run and 2 waiting messages on a thread, and the second one gets a message to it with multitask_strategy="interrupt"
    Then the 3 are interrupted, and say which message of another process it was
    And that message is answered

    Examples:
      | home       |
      | its own    |
      | an adopted |

  Scenario: A message that merely waits does not hide one that is to interrupt
    Given 2 bridges on its own loops that share their lanes
    When another process has a thread, a third one wants to interrupt it, and the second bridge gets a message
    Then the note of the third one is still there, and the message is answered in the end

  Scenario: A bridge that always has the next message does not keep the thread from another one
    Given 2 bridges on its own loops that share their lanes
    When the first one gets a next message to a thread whenever one is answered, and the second one gets 3
    Then the second one answers its 3

  @once
  Scenario: A bridge with a long backlog on a thread does not keep it from another one
    Given 2 bridges on its own loops that share their lanes
    When the first one gets 20000 messages to a thread, and the second one gets 1
    Then the second one answers that before the first one has answered its 20000

  @once
  Scenario: A backlog on 500 threads does not keep them from another bridge
    Given 2 bridges on its own loops that share their lanes, with max_concurrency=2
    When the first one has 2 runs that wait, and 500 messages to as many other threads
    Then the second one answers a message to each of the last 400 of those threads

  Scenario Outline: With lanes, runs of a bridge of its own are rolled back as without: <place>
    Given 2 bridges on its own loops that share their lanes
    And a thread in an InMemorySaver, on which a graph has run
    When a run waits in <place> with durability="async", and a message with multitask_strategy="rollback" follows
    Then that message finds the thread as it was before the run
    And the thread answers as if that run had never been

    Examples:
      | place                  |
      | a node of its subgraph |
      | one of parallel nodes  |
      | a node with its answer |

  # -- slots, ends -------------------------------------------------------------------------------

  Scenario: A message that waits for a thread of another process holds no slot
    Given 2 bridges on its own loops that share their lanes, with max_concurrency=1
    When the first one has a run on a thread, and the second one gets a message to it, and one to another thread
    Then the second one answers the one to the other thread
    When the run of the first one ends
    Then the second one answers the message that waited

  Scenario Outline: After <end> nothing waits for a thread, and nothing holds one
    Given 2 bridges on <home> loops that share their lanes
    When the first one has a run on a thread, the second one has 3 messages that wait for it, and <end> ends them
    Then the 3 are cancelled, and the second bridge has nothing in flight
    When the run of the first one ends
    Then the second one, or a new one, has the thread at once

    Examples:
      | end                          | home       |
      | the cancellation of each     | its own    |
      | the cancellation of each     | an adopted |
      | cleanup_tasks                | its own    |
      | cleanup_tasks                | an adopted |
      | the close of the second one  | its own    |
      | the close of the second one  | an adopted |
      | a deadline of each           | its own    |

  Scenario Outline: After <end> of a bridge whose run has a thread, another bridge has the thread at once
    Given 2 bridges on <home> loops that share their lanes
    When the first one has a run on a thread, and <end> of the first one
    Then the second one, or a new one, has the thread at once

    Examples:
      | end           | home       |
      | cleanup_tasks | its own    |
      | cleanup_tasks | an adopted |
      | the close     | its own    |
      | the close     | an adopted |

  Scenario: A sync node that continues after a timeout keeps its thread from other processes
    Given 2 bridges on its own loops that share their lanes
    When a sync node of the first one goes on after its timeout, and the second one gets a message to its thread
    Then that message is answered after the node has ended

  # -- what is lost ------------------------------------------------------------------------------

  Scenario Outline: A run whose lease is lost is cancelled, and its graph saves nothing more: <kind>
    Given 2 bridges on its own loops that share their lanes, with lane_ttl=3
    When <kind> is in the middle of a run, and its lease is taken away in the store
    Then its future says that the lease of the thread is lost
    And the thread has nothing of it, once it has really ended

    Examples:
      | kind                        |
      | a node that waits           |
      | a node that swallows it     |
      | a sync node                 |
      | a run that would be retried |

  Scenario: A run is not begun under a lease that was lost while it waited for its slot
    Given 2 bridges on its own loops that share their lanes, with lane_ttl=3, max_concurrency=1
    When a message has its thread, waits for the only slot, and its lease is taken away in the store
    Then the message has another one when the slot is free, and is answered

  Scenario Outline: A message whose lanes are out of reach ends with <error>: <what>
    Given 2 bridges on its own loops that share their lanes
    When <what>, a message to a thread and one without are sent
    Then the one to the thread ends with <error>, and the other one is answered

    Examples:
      | what                             | error                |
      | the state is closed              | StateClosedError     |
      | the loop of the state has ended  | LoopUnavailableError |

  Scenario: A message that waits for a thread ends when the loop of the state does
    Given 2 bridges on its own loops that share their lanes
    When the first one has a run on a thread, the second one has a message that waits for it, and the loop of the state ends
    Then that message ends with an error that names the state

  # -- arguments ---------------------------------------------------------------------------------

  Scenario Outline: What is not a state, or no time, is refused: <arguments>
    When a bridge is made with <arguments>
    Then <error> is raised, which says "<words>"

    Examples:
      | arguments              | error                | words                                    |
      | lanes="sqlite:///a.db" | InvalidTypeError     | lanes must be a State, as open_state(    |
      | lanes=True             | InvalidTypeError     | lanes must be a State, as open_state(    |
      | lane_ttl=0             | InvalidArgumentError | lane_ttl must be more than 0 seconds     |
      | lane_ttl="soon"        | InvalidTypeError     | lane_ttl                                 |

  Scenario: Any string is a thread with a lane of its own
    Given 2 bridges on its own loops that share their lanes
    When both bridges add 1 to each of some odd threads, 5 times
    Then each of these threads has counted 10

  @once
  Scenario: 2000 messages on 100 threads through 2 bridges: nothing lost, nothing held
    Given 2 bridges on its own loops that share their lanes
    When both bridges add 1 to each of 100 threads, 10 times
    Then each of these threads has counted 20
    And the bridges hold no lease

  @once
  Scenario Outline: Six threads send to 5 threads under every policy, with deadlines and cancellations: nothing overlaps, nothing is held
    Given 2 bridges on <home> loops that share their lanes, with max_concurrency=4
    When 6 threads send 100 messages each to both bridges, under every policy, and cancel or limit some
    Then all of them are resolved, and no two runs of a thread have overlapped
    And the bridges hold no lease

    Examples:
      | home       |
      | its own    |
      | an adopted |

  # -- the saver behind the lanes ------------------------------------------------------------------

  Scenario: A fenced saver writes nothing when the lease is lost, in both forms
    Given a saver whose fence refuses every write
    Then put, aput, put_writes and aput_writes each raise LaneLostError, and the saver is empty

  Scenario: A fenced saver reads, writes and counts as the saver behind it, in both forms
    Given a saver, and another one that is fenced
    When the same checkpoints and writes are put into both, without waiting and awaited
    Then both answer each question about them alike
    And what only the saver behind it has is reached as well
