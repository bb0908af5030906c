Feature: TaskRegistry loses no task, leaks none, and is always accountable

  Each claim is made of the registry and, as a control that must fail, of a naive one beside it.

  Scenario Outline: <The registry> survives a task that arrives during a snapshot
    Given <the registry> with 3 tasks, one of which lets another arrive when it is asked its state
    When a snapshot is taken
    Then no error is raised
    And the task that arrived is in the registry

    Examples:
      | The registry   | the registry   |
      | A TaskRegistry | a TaskRegistry |

    @tdd_expected_fail
    Examples: naive: "Set changed size during iteration"
      | The registry | the registry |
      | A plain set  | a plain set  |

  Scenario Outline: <The registry> does not lose the task that arrives while ended ones are cleared out
    Given <the registry> with 3 tasks, one of which lets another arrive when it is asked its state
    When what has ended is cleared out
    Then no error is raised
    And the task that arrived is in the registry

    Examples:
      | The registry   | the registry   |
      | A TaskRegistry | a TaskRegistry |

    @tdd_expected_fail
    Examples: naive: the set is written back as it was read
      | The registry | the registry |
      | A plain set  | a plain set  |

  Scenario Outline: <The registry> does not keep a task that ended <when>
    Given <the registry>
    When a task is added that ended <when>
    Then the registry is empty

    Examples:
      | The registry   | the registry   | when                     |
      | A TaskRegistry | a TaskRegistry | before it was added      |
      | A TaskRegistry | a TaskRegistry | just before it was heard |
      | A TaskRegistry | a TaskRegistry | as soon as it was heard  |

    @tdd_expected_fail
    Examples: naive: the callback came before the entry
      | The registry | the registry | when                     |
      | A plain set  | a plain set  | before it was added      |
      | A plain set  | a plain set  | just before it was heard |
      | A plain set  | a plain set  | as soon as it was heard  |

  Scenario: Tasks that threads add and end concurrently are all counted, and all leave
    Given a TaskRegistry
    When 8 threads add, end, cancel, discard and look at 500 tasks each
    Then no error is raised
    And 4000 tasks came: 2000 succeeded, 1000 failed, 1000 cancelled
    And the registry is empty

  Scenario Outline: <Closing> and adding are one critical section: <entering> between any two lines
    Given <Closing> is about to close
    When a <entering> adds a task, at each place of closing in turn
    Then each time the task was refused, or closing has seen it

    Examples:
      | Closing        | entering       |
      | A TaskRegistry | signal handler |
      | A TaskRegistry | finalizer      |

    @tdd_expected_fail
    Examples: naive: it slips in between the copy and the flag
      | Closing     | entering       |
      | A plain set | signal handler |
      | A plain set | finalizer      |

  Scenario Outline: A <entering> may enter while its thread is <inside>
    Given a TaskRegistry that its own thread may enter
    When a <entering> comes in at each place of <inside>, and uses all of it
    Then each time all was as it should be, at more than 2 places

    Examples:
      | entering       | inside                       |
      | signal handler | adding a task                |
      | signal handler | ending a task                |
      | signal handler | discarding a task            |
      | signal handler | saying that a task ended     |
      | signal handler | taking a snapshot            |
      | signal handler | listing the tasks            |
      | signal handler | counting the tasks           |
      | signal handler | looking for a task           |
      | signal handler | reading the state            |
      | signal handler | reading the statistics       |
      | signal handler | closing                      |
      | signal handler | cancelling everything        |
      | signal handler | cancelling what is chosen    |
      | signal handler | sweeping                     |
      | signal handler | waiting until idle           |
      | signal handler | the end of the last task     |
      | finalizer      | adding a task                |
      | finalizer      | ending a task                |
      | finalizer      | discarding a task            |
      | finalizer      | saying that a task ended     |
      | finalizer      | taking a snapshot            |
      | finalizer      | listing the tasks            |
      | finalizer      | counting the tasks           |
      | finalizer      | looking for a task           |
      | finalizer      | reading the state            |
      | finalizer      | reading the statistics       |
      | finalizer      | closing                      |
      | finalizer      | cancelling everything        |
      | finalizer      | cancelling what is chosen    |
      | finalizer      | sweeping                     |
      | finalizer      | waiting until idle           |
      | finalizer      | the end of the last task     |

  @tdd_expected_fail
  Scenario Outline: A <entering> may enter the bare fix, a set under a plain lock
    Given a set under a plain lock that its own thread may enter
    When a <entering> comes in at each place of adding a task, and adds another
    Then each time all was as it should be, at more than 0 places

    Examples:
      | entering       |
      | signal handler |
      | finalizer      |

  Scenario Outline: Real <interruptions> that hit inside the registry do no harm
    Given a TaskRegistry
    When tasks are added and ended until <interruptions> have done so from inside, 20 times
    Then no error is raised
    And the registry is empty
    And every task was counted

    Examples:
      | interruptions |
      | alarm signals |

    # Without the GIL a collection comes at every 512th allocation, and stops all threads for long.
    @with_gil
    Examples:
      | interruptions |
      | collections   |

  Scenario: The registry imports nothing outside the standard library
    When registry.py and errors.py are imported in a process that has the standard library alone
    Then the import succeeds

  @tdd_expected_fail
  Scenario: That check can fail: messages.py imports more than the standard library
    When registry.py and messages.py are imported in a process that has the standard library alone
    Then the import succeeds
