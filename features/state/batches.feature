Feature: Concurrent calls on a database are batched, and no call suffers from the others in its batch

  A transaction waits for the disk; so calls that arrive while one is on its way are one transaction,
  the next. A call that comes alone is sent at once, and alone.

  # -- who goes with whom --------------------------------------------------------------------------

  Scenario: Calls that arrive while one is in flight are the next batch
    Given a database that answers when it is told to
    When 1 call is made, and then 9 more
    And it answers as long as there is something to answer
    Then it was sent 1 call, and then 9
    And each caller has the answer to its own call

  Scenario: A batch is limited, so that its locks are released soon
    Given a database that answers when it is told to
    When 1 call is made, and then 100 more
    And it answers as long as there is something to answer
    Then it was sent 1 call, then 64, and then 36
    And each caller has the answer to its own call

  Scenario: A call that arrives after all others were answered does not wait
    Given a database that answers when it is told to
    When 1 call is made, and then 9 more
    And it answers as long as there is something to answer
    And 1 call is made, and then 0 more
    And it answers as long as there is something to answer
    Then it was sent 1 call, then 9, and then 1

  # -- cancelled -----------------------------------------------------------------------------------

  Scenario: A call that is cancelled before its batch is sent is not sent
    Given a database that answers when it is told to
    When 1 call is made, and then 9 more
    And call 3 is cancelled
    And it answers as long as there is something to answer
    Then it was sent 1 call, and then 8
    And all callers but 3 have the answer to their own call

  Scenario: A call that is cancelled in flight does not affect the others of its batch
    Given a database that answers when it is told to
    When 1 call is made, and then 9 more
    And it answers once
    And call 3 is cancelled
    And it answers as long as there is something to answer
    Then it was sent 1 call, and then 9
    And all callers but 3 have the answer to their own call

  Scenario: A batch whose callers are all cancelled is cancelled, and the next one is sent
    Given a database that answers when it is told to
    When 1 call is made, and then 3 more
    And it answers once
    And 2 calls more are made
    And calls 1 to 3 are cancelled
    Then the batch was cancelled before any of them knew that it was itself
    When it answers as long as there is something to answer
    Then it was sent 1 call, then 3, and then 2
    And callers 4 and 5 have the answer to their own call

  Scenario: A call that is sent alone and cancelled does not block the next ones
    Given a database that answers when it is told to
    When 1 call is made, and then 9 more
    And call 0 is cancelled
    And it answers as long as there is something to answer
    Then it was sent 1 call, and then 9
    And all callers but 0 have the answer to their own call

  Scenario: Each caller of a failed batch gets its error
    Given a database that answers when it is told to
    When 1 call is made, and then 9 more
    And it answers once, and then fails
    Then call 0 was answered, and calls 1 to 9 have failed with that error

  Scenario: Callers that wait behind a failed single call get its error, without doubt about their effect
    Given a database that answers when it is told to
    When 1 call is made, and then 100 more
    And it answers with an error
    Then call 0 has failed with that error
    And calls 1 to 100 have failed with an error of their own that leaves no doubt
    When 1 call is made, and then 0 more
    And it answers as long as there is something to answer
    Then it was sent 1 call, and then 1

  Scenario: If all tasks of a loop are cancelled as a batch is about to be sent, the next calls are sent
    Given a database that answers when it is told to
    When 1 call is made, and then 9 more
    And it answers, and all tasks are cancelled before the next batch has begun
    Then calls 1 to 9 were cancelled, and were not sent
    When 1 call is made, and then 0 more
    And it answers as long as there is something to answer
    Then it was sent 1 call, and then 1

  # -- in SQLite -----------------------------------------------------------------------------------

  Scenario: Concurrent calls are few transactions
    Given an empty store in SQLite
    When 150 increments are made while the thread of the file is busy
    Then the counter has come to 150, and the file was held 3 times

  Scenario: A call that is cancelled while it waits for the thread of the file is not made
    Given an empty store in SQLite
    When 9 increments wait for the thread of the file, and 3 are cancelled
    Then 3 were cancelled, and the counter has come to 6

  Scenario: One call that cannot be done does not undo those beside it
    Given an empty store in SQLite
    When 9 increments are made at the same time, and one of a key that is not text
    Then UnicodeEncodeError is raised
    And the counter is 9

  Scenario: A file locked by another process delays a batch no longer than a call
    Given an empty store in SQLite
    When 20 increments are made at the same time while another connection writes for a while
    Then the counter is 20

  Scenario: Any number of workers that wait for work leave the file unlocked
    Given an empty store in SQLite
    When 20 workers claim at the same time while another connection has the file
    Then each of them was told at once that there is nothing

  Scenario: A queue that is never empty is never taken for empty
    Given an empty store in SQLite
    When 5 tasks are overdue, and whenever a claim has looked another process claims one, too
    Then the claim has a task

  @postgresql
  Scenario: A task that another session is making ready is waited for
    Given an empty store in PostgreSQL
    When the only task is overdue, and a claim comes while another session is sweeping it
    Then the claim has a task

  # -- in PostgreSQL -------------------------------------------------------------------------------

  Scenario Outline: Workers of <backend> that claim at the same time get one task each, in order
    Given an empty store in <backend>
    When <tasks> tasks are claimed by 12 workers at the same time
    Then <claimed> have a task each, those of the highest priority, under their own names
    And <without> have none

    Examples:
      | backend | tasks | claimed | without |
      | SQLite  | 20    | 12      | 0       |
      | SQLite  | 5     | 5       | 7       |
      | SQLite  | 0     | 0       | 12      |

    @postgresql
    Examples:
      | backend    | tasks | claimed | without |
      | PostgreSQL | 20    | 12      | 0       |
      | PostgreSQL | 5     | 5       | 7       |
      | PostgreSQL | 0     | 0       | 12      |

  Scenario Outline: Tasks of <backend> whose leases are over are claimed again by many at the same time
    Given an empty store in <backend>
    When 12 tasks are claimed whose leases are over at once, and then by 12 workers at the same time
    Then each of the 12 tasks is claimed once again, under a larger token

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

  @postgresql
  Scenario: If the server is gone, each claim raises an exception of its own
    Given an empty store in PostgreSQL
    When 12 workers claim at the same time, and the server cannot be asked
    Then each of them has ended with an error of its own that leaves no doubt

  # -- claims that are cancelled -------------------------------------------------------------------

  Scenario Outline: A claim cancelled <times> while <what> has claimed nothing
    Given an empty store in SQLite
    When one of 3 workers is cancelled <times> while <what>
    Then all 3 tasks can be had, in attempt 1

    Examples:
      | what                                      | times   |
      | the thread of SQLite is at something else | once    |
      | the thread of SQLite claims for it        | once    |
      | the thread of SQLite claims for it        | twice   |
      | the thread of SQLite claims for it        | 4 times |
      | it waits for its batch                    | once    |
      | the thread of SQLite claims for its batch | once    |

  Scenario: A call that SQLite's thread has not begun is not begun once it is cancelled
    Given an empty store in SQLite
    When one of 3 workers is cancelled once while the thread of SQLite is at something else
    Then no claim was made but these 3

  Scenario Outline: A call cancelled <when> <backend> is closed in haste raises, and leaves no connection
    Given an empty store in <backend>
    When a worker is cancelled while <backend> claims for it, <when> who closes the state is, too
    Then both were cancelled

    Examples:
      | backend | when   |
      | SQLite  | before |
      | SQLite  | after  |

    @postgresql
    Examples:
      | backend    | when   |
      | PostgreSQL | before |
      | PostgreSQL | after  |

    @valkey
    Examples:
      | backend | when   |
      | Valkey  | before |

  Scenario Outline: A claim cancelled after any number of the loop's iterations has claimed nothing from <backend>
    Given an empty store in <backend>
    When one of 3 workers is cancelled, after more turns of the loop each time
    Then all 3 tasks could be had each time, in attempt 1

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
