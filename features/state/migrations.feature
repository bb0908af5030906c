@once
Feature: A store of an older release is migrated when it is opened: once, and as a whole

  The stores are data of these tests (`features/data/state`), written by the release that had the
  first version of the tables and of the layout in Redis. What a migration does is told at the top
  of `state/backends/sql/schema.py`.

  Scenario Outline: All that a store of the first version holds is there after the upgrade, in <backend>
    Given a store of the first version in <backend>
    When it is opened by this release
    Then its values, fences, locks and tasks are as they were
    And its version is that of this release

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

  Scenario Outline: A task of the first version has no times, and its age counts from the migration, in <backend>
    Given a store of the first version in <backend>
    When it is opened by this release
    Then its 8 tasks have no times, and are not older than the migration
    When the next task is claimed and completed
    Then that task tells when it was claimed and completed

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

  Scenario Outline: Processes that open a store of the first version at the same moment all find it migrated, in <backend>
    Given a store of the first version in <backend>
    When 4 processes open it at the same moment, and count to 25 each
    Then none of them complained
    And the state has counted 100
    And its version is that of this release

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

  Scenario Outline: Of two programs that find a migration due, <who> migrates, and the other continues
    Given a store of the first version in SQLite
    When two programs find a migration due, and then <who> runs it in each
    Then none of them complained

    Examples:
      | who     |
      | a state |

    @tdd_expected_fail
    Examples: look, then migrate
      | who                             |
      | a script that has looked before |

  Scenario Outline: The version can be read without migrating, in <backend>
    Given a store of the first version in <backend>
    When its version is read
    Then a migration is due
    And its version is still the first one

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

  Scenario Outline: A migration that fails leaves the tables as they were, in <backend>
    Given a store of the first version in <backend>
    When it is opened by a release whose migration fails at its end
    Then an error says "no_such_column"
    And its version is still the first one
    When it is opened by this release
    Then its values, fences, locks and tasks are as they were

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

  Scenario Outline: A program of the older release that has the store open meanwhile continues, in <backend>
    Given a store of the first version in <backend>
    When it is opened by this release
    And an older program adds a task and claims it
    Then this release completes that task

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

  @postgresql
  Scenario: If the user may use the tables, but not change them, the error says that a migration is due
    Given a store of the first version in PostgreSQL
    And a user there who may use the tables
    When a state is opened at {url}
    Then InvalidArgumentError is raised, which says "migrated"

  @postgresql
  Scenario: A migration that waits for another transaction in vain is reported
    Given a store of the first version in PostgreSQL
    When a state is opened at {url}&command_timeout={seconds} while another transaction reads its tasks
    Then StateUnavailableError is raised, which says "another transaction has locked them, end it"
    And its version is still the first one

  Scenario: A journal that the first version has begun is continued
    Given a journal of the first version, with two failed lines
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered --journal run.db --resume-failed"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4, 5" in this order
