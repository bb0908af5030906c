Feature: No more tasks of a queue are claimed at once than its workers have declared

  That each backend keeps the limit is checked by the conformance suite too. Here are processes.

  Scenario Outline: Workers in 3 <many> <that have declared it> have 3 tasks of <backend> at once, at most
    Given a queue of 100 tasks in <backend>
    When workers in 3 <many> work on them <that have declared it>
    Then each task was completed once, and 3 were claimed at once, at most

    Examples:
      | backend | many    | that have declared it |
      | memory  | threads | that have declared it |

    @once
    Examples:
      | backend | many      | that have declared it |
      | SQLite  | processes | that have declared it |

    @postgresql
    Examples:
      | backend                    | many      | that have declared it |
      | PostgreSQL                 | processes | that have declared it |
      | PostgreSQL behind a pooler | processes | that have declared it |

    @valkey
    Examples:
      | backend | many      | that have declared it |
      | Valkey  | processes | that have declared it |

    @tdd_expected_fail @once
    Examples: naive: two steps
      | backend | many      | that have declared it      |
      | memory  | threads   | that count, and then claim |
      | SQLite  | processes | that count, and then claim |

    @postgresql @tdd_expected_fail
    Examples: naive: two steps
      | backend    | many      | that have declared it      |
      | PostgreSQL | processes | that count, and then claim |

    @valkey @tdd_expected_fail
    Examples: naive: two steps
      | backend | many      | that have declared it      |
      | Valkey  | processes | that count, and then claim |

  Scenario Outline: Threads that share a state of <backend> have 3 tasks at once, at most
    Given a queue of 100 tasks in <backend>
    When 8 threads work on them by the sync of one state
    Then each task was completed once, and 3 were claimed at once, at most

    Examples:
      | backend |
      | memory  |
      | SQLite  |

  Scenario Outline: A claim with a limit does not step over the delayed tasks of its queue: <backend>, <how> the index of claimed tasks
    Given a queue of 0 tasks in <backend>
    When workers claim <how> the index of claimed tasks beside 100 delayed tasks, and then beside 100000 more
    Then the database has done less than 3 times as much for the second ones

    @once
    Examples:
      | backend | how  |
      | SQLite  | with |

    @postgresql
    Examples:
      | backend    | how  |
      | PostgreSQL | with |

    @once @tdd_expected_fail
    Examples: naive: by the index of due dates
      | backend | how     |
      | SQLite  | without |

    @postgresql @tdd_expected_fail
    Examples: naive: by the index of due dates
      | backend    | how     |
      | PostgreSQL | without |

  Scenario Outline: The places of a process that was killed are free when its leases end: <way> in <backend>
    Given a queue of 10 tasks in <backend>
    When a process that has claimed all that may be is killed, <way>
    Then another worker has claimed a task that was claimed before

    @once
    Examples:
      | backend | way                |
      | SQLite  | by the declaration |

    @postgresql
    Examples:
      | backend    | way                |
      | PostgreSQL | by the declaration |

    @valkey
    Examples:
      | backend | way                |
      | Valkey  | by the declaration |

    @once @tdd_expected_fail
    Examples: naive: a counter
      | backend | way          |
      | SQLite  | by a counter |

  Scenario Outline: A process that was stopped for longer than its leases does not return to a place that is taken: <backend>
    Given a queue of 10 tasks in <backend>
    When a process that has claimed all that may be is stopped until others have its places
    Then it has lost its claims when it continues, and 3 tasks are claimed

    @once
    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: A worker that waits for a place is woken when another process completes a task: <backend>
    Given a queue of 10 tasks in <backend>
    When a worker that never polls waits, and a process that has claimed all that may be completes one
    Then the worker that waited has claimed a task for the first time

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: Whatever ends a claimed task of <backend> wakes a worker of another state that waits for its place
    Given a queue of 0 tasks in <backend>
    When a worker that never polls waits for a place, and another state frees one in each way
    Then it was woken each time that a place was free

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario: Workers of one state that wait for a place are woken at once
    Given a queue of 20 tasks in memory
    When 5 workers of one state that never poll work on them, one task at once
    Then each task was completed once, and 1 was claimed at once, at most

  Scenario Outline: A place that is free wakes one of the workers of a state that wait for it: <backend>
    Given a queue of 60 tasks in <backend>
    When 50 workers of one state that never poll wait for one place, which each of them frees
    Then they have called the backend 50 times for it

    Examples:
      | backend |
      | memory  |
      | SQLite  |

  Scenario Outline: A worker that was woken for a place, and is cancelled, leaves it to the next one: <backend>
    Given a queue of 60 tasks in <backend>
    When a worker that was woken for a place is cancelled, at each of 12 moments
    Then the next one has had the place, 12 times

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

  Scenario: A limit that is raised, or taken back, wakes the workers that wait for it
    Given a queue of 10 tasks in memory
    When the limit is raised, and then taken back, while workers wait that never poll
    Then they have claimed a task each time

  Scenario Outline: A limit of <limit> is refused, and the declaration stays as it was
    Given a queue of 10 tasks in memory
    When a limit of 1 is declared, and then one of <limit>
    Then <error> was raised, which says "max_claimed must", and 1 task can be claimed

    Examples:
      | limit      | error                |
      | 0          | InvalidArgumentError |
      | -1         | InvalidArgumentError |
      | 2147483648 | InvalidArgumentError |
      | 1.5        | InvalidTypeError     |
      | true       | InvalidTypeError     |
      | "3"        | InvalidTypeError     |
