@postgresql
Feature: Shared state works behind a pooler of PostgreSQL connections, or says what is in its way

  PgBouncer and its kind give a client a session of the server for as long as it is connected, for a
  transaction, or for a statement. What a client leaves behind in a session (a prepared statement, a
  setting) is another one's then. The one here changes sessions whenever it may.

  Scenario Outline: Behind a pooler in <mode> mode, <who> counts
    Given a PostgreSQL server behind a pooler in <mode> mode
    When <who> counts 20 times, by several tasks at once
    Then it has counted 20 times

    Examples:
      | mode        | who     |
      | session     | a state |
      | transaction | a state |

    @tdd_expected_fail
    Examples: today's way: statements that are prepared in a session
      | mode        | who                                  |
      | transaction | a connection that prepares statements |

  Scenario Outline: Behind a pooler in <mode> mode every method of a state does what it does elsewhere
    Given a PostgreSQL server behind a pooler in <mode> mode
    When each method of a state is called there
    Then each call was answered, as if nothing had happened

    Examples:
      | mode        |
      | session     |
      | transaction |

  Scenario: A pooler in statement mode is refused with the remedy, as long as there are no tables
    Given a PostgreSQL server behind a pooler in statement mode
    When a state is opened there
    Then an InvalidArgumentError says "set its pool_mode to transaction or session"

  Scenario: A pooler in statement mode will do where the tables were made without it
    Given a PostgreSQL server with the tables, behind a pooler in statement mode
    When each method of a state is called there
    Then each call was answered, as if nothing had happened

  Scenario: What the URL asks for and a pooler does not pass on is told
    Given a PostgreSQL server behind a pooler in transaction mode
    When a state is opened there with &options=-c%20work_mem%3D8MB
    Then an InvalidArgumentError says "unsupported startup parameter: options"

  Scenario: Where transactions are stricter by default than the state counts on, it says how to change that
    Given a PostgreSQL server behind a pooler in transaction mode
    And the transactions there are serializable by default
    When a state is opened there
    Then an InvalidArgumentError says "ALTER DATABASE"

  Scenario: A pooler that has no session left is told as that
    Given a PostgreSQL server behind a pooler in session mode that has one session
    And connecting is given up after 0.3 seconds
    When a state is opened there while somebody else has that session
    Then a StateUnavailableError says "default_pool_size"

  Scenario: A database whose encoding has not all characters is refused, with the remedy
    Given a PostgreSQL database that is encoded in LATIN1
    When a state is opened there
    Then an InvalidArgumentError says "ENCODING 'UTF8'"
