Feature: Every backend keeps the contract of shared state

  The checks are `rxlanggraph.testing.state_conformance`, which you can run against a backend of
  their own. The servers are real; they are started by the first scenario that needs them.

  Scenario Outline: Values, counters and transactions are atomic in <backend>
    Given a store in <backend>
    When it is checked for values
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: Names are compared exactly in <backend>
    Given a store in <backend>
    When it is checked for names
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: All users of <backend> see the same data, each namespace for itself
    Given a store in <backend>
    When it is checked for sharing
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: A lock has one holder in <backend>, and its token always grows
    Given a store in <backend>
    When it is checked for locks
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: The former holder of a lock cannot write in <backend>
    Given a store in <backend>
    When it is checked for fencing
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: An item is claimed by one worker in <backend>, and passes through its states
    Given a store in <backend>
    When it is checked for work
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: Batches are claimed and completed in one step in <backend>, each task for itself
    Given a store in <backend>
    When it is checked for batches
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: Items of a thread are processed in order in <backend>, one at a time
    Given a store in <backend>
    When it is checked for order
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: No more tasks in <backend> are claimed at once than the limit of their queue
    Given a store in <backend>
    When it is checked for limits
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: A dead worker's items come back in <backend>, and a late worker is refused
    Given a store in <backend>
    When it is checked for recovery
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: A cancelled call takes effect as a whole or not at all in <backend>
    Given a store in <backend>
    When it is checked for cancelling
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: Any number of tasks in <backend> is processed in short steps
    Given a store in <backend>
    When it is checked for steps
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: Tasks, keys and locks in <backend> can be looked at, and tasks cancelled from outside
    Given a store in <backend>
    When it is checked for administration
    Then it keeps the contract

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario: No group of checks is left out
    Then there are outlines for exactly these groups
      """
      values names sharing locks fencing work batches order limits recovery cancelling steps administration
      """

  @once
  Scenario: No check depends on how long a machine stands still between two calls
    When each check stands still for 3 seconds before each of its first calls in turn
    Then all of them are passed

  Scenario Outline: The suite detects that a backend <does wrong>
    Given a backend of one's own that <does wrong>
    When it is checked for <group>
    Then the suite says so

    Examples:
      | group      | does wrong                                               |
      | values     | reads a counter and then writes it                       |
      | values     | compares and then sets                                   |
      | values     | replaces a value at once, whatever it is                 |
      | values     | replaces a value at once, for as long as it was there    |
      | values     | begins the versions of each key anew                     |
      | values     | keeps the time of a key that is written without one      |
      | values     | counts in floating point                                 |
      | names      | overlooks case                                           |
      | names      | replaces a value at once, and overlooks case             |
      | sharing    | has one space for all                                    |
      | sharing    | reads one key after the other                            |
      | locks      | lets two hold a lock                                     |
      | locks      | begins the tokens anew with each connection              |
      | locks      | lets any caller release a lock                           |
      | locks      | renews leases that are over                              |
      | fencing    | looks at no token                                        |
      | fencing    | replaces a value at once, for any caller                 |
      | fencing    | replaces a value at once, and forgets who did            |
      | fencing    | forgets the token with its key                           |
      | fencing    | keeps the token of a write that was not made             |
      | work       | chooses a task and then claims it                        |
      | work       | looks for the keys and then adds the tasks               |
      | work       | forgets priorities                                       |
      | work       | counts an attempt that was given back                    |
      | work       | puts dead letters back in front                          |
      | batches    | chooses a batch and then claims it                       |
      | batches    | returns a batch in another order                         |
      | batches    | completes nothing beside a lost claim                    |
      | batches    | tells nothing of lost claims                             |
      | batches    | keeps the batch of who is cancelled                      |
      | order      | lets the tasks of a thread overtake each other           |
      | limits     | counts the claimed tasks and then claims                 |
      | limits     | counts leases that are over                              |
      | limits     | renews a lease that is over beyond the limit             |
      | limits     | claims a whole batch where there is room for one         |
      | recovery   | accepts the result of a slow worker                      |
      | recovery   | keeps the last of two results                            |
      | recovery   | adds again what was sent again                           |
      | recovery   | takes a task from a slow worker though no other wants it |
      | cancelling | writes one key after the other                           |
      | cancelling | keeps what was claimed for who is cancelled              |
      | steps      | puts back in one step whatever is dead                   |
      | steps      | puts back what dies meanwhile                            |
      | steps      | purges no more than a step                               |
      | administration | cancels only what waits                              |
      | administration | tells when a task was put back as when it was added  |

  Scenario Outline: From the command line, the exit status shows <what>
    When "python -m rxlanggraph.testing.state_conformance <arguments>" is run
    Then its status is <status>, its last line "<last line>"

    Examples:
      | what                    | arguments      | status | last line |
      | a store without a fault | memory: names: | 0      | 0 failed  |
