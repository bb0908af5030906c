@once
Feature: A worker that waits for a task is woken by other processes, and by polling where they cannot

  The workers here never poll, unless the scenario says so.

  Scenario Outline: A task that another process adds wakes a worker of <backend>: <a worker>
    Given an empty queue on the server of <backend>
    When <a worker> waits for a task, and another process adds one
    Then the worker has claimed it

    @postgresql
    Examples:
      | backend    | a worker             |
      | PostgreSQL | a worker             |

    @valkey
    Examples:
      | backend    | a worker             |
      | Valkey     | a worker             |

    @postgresql @tdd_expected_fail
    Examples: naive: only the calls of its own process wake it
      | backend    | a worker             |
      | PostgreSQL | a worker that is deaf |

    @valkey @tdd_expected_fail
    Examples: naive: only the calls of its own process wake it
      | backend    | a worker             |
      | Valkey     | a worker that is deaf |

  Scenario Outline: Whatever makes a task of <backend> claimable wakes a worker of another state
    Given an empty queue on the server of <backend>
    When a worker waits, and another state frees a task in each way
    Then it was woken each time

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend    |
      | Valkey     |

  Scenario Outline: After the server of <backend> has ended the connection of the listener, a task wakes the worker
    Given an empty queue on the server of <backend>
    When a worker waits, its listening connection is killed, and another state adds a task
    Then the worker has claimed it

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend    |
      | Valkey     |

  Scenario Outline: A state of <backend> that is closed while a worker waits leaves no connection, <when>
    Given an empty queue on the server of <backend>
    When a state is closed <when>
    Then the worker was told StateClosedError, and the server has no connection of the state

    @postgresql
    Examples:
      | backend    | when                          |
      | PostgreSQL | while it listens              |
      | PostgreSQL | while it connects to listen   |

    @valkey
    Examples:
      | backend    | when                          |
      | Valkey     | while it listens              |
      | Valkey     | while it connects to listen   |

  Scenario Outline: Without a worker that waits in vain, a state of <backend> has no connection to listen
    Given an empty queue on the server of <backend>
    When a worker claims what is there, and looks for more without waiting
    Then no connection listens

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend    |
      | Valkey     |

  @postgresql
  Scenario: PostgreSQL notifies only while a worker waits
    Given an empty queue on the server of PostgreSQL
    When another client listens, and tasks are added before, while and after a worker waits
    Then that client was notified of those in between alone

  @postgresql
  Scenario: A process that the network loses as it begins to listen holds up no other one
    Given an empty queue on the server of PostgreSQL
    When the network loses a process that is about to listen, and another state adds a task
    Then the task was added

  @postgresql
  Scenario: Behind a pooler in transaction mode no connection listens, and polling finds the task
    Given an empty queue on the server of PostgreSQL
    When a worker that polls waits behind a pooler in transaction mode, and a task is added
    Then the worker has claimed it
    And no connection listens

  @valkey
  Scenario Outline: Polling finds the task for a user <without a right>, and nothing is refused
    Given a Valkey server of its own with an empty queue, for a user <without a right>
    When a worker that polls waits for a task, and another state of that user adds one
    Then the worker has claimed it

    Examples:
      | without a right                  |
      | without the right to publish     |
      | without the right to subscribe   |

  @valkey
  Scenario: A user with the rights to publish and subscribe that docs/state.md names needs no polling
    Given a Valkey server of its own with an empty queue, for a user with the rights to be woken
    When a worker waits for a task, and another process adds one
    Then the worker has claimed it
