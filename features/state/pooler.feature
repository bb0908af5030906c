@postgresql
Feature: Shared state works behind a PostgreSQL connection pooler, or names the obstacle

  PgBouncer and its kind give a client a session of the server for as long as it is connected, for a
  transaction, or for a statement. What a client leaves behind in a session (a prepared statement, a
  setting) is another one's then. The one here changes sessions whenever it may.

  Scenario Outline: Behind a pooler in <mode> mode, <who> counts
    Given a PostgreSQL server behind a pooler in <mode> mode
    When <who> counts 20 times, by several tasks at once
    Then the counter is 20

    Examples:
      | mode        | who     |
      | session     | a state |
      | transaction | a state |

    @tdd_expected_fail
    Examples: naive: statements that are prepared in a session
      | mode        | who                                  |
      | transaction | a connection that prepares statements |

  Scenario Outline: Behind a pooler in <mode> mode every method of a state works as elsewhere
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
    Then InvalidArgumentError is raised, which says "set its pool_mode to transaction or session"

  Scenario: A pooler in statement mode works if the tables were made without it
    Given a PostgreSQL server with the tables, behind a pooler in statement mode
    When each method of a state is called there
    Then each call was answered, as if nothing had happened

  Scenario: An option of the URL that the pooler does not pass on is named
    Given a PostgreSQL server behind a pooler in transaction mode
    When a state is opened there with &options=-c%20work_mem%3D8MB
    Then InvalidArgumentError is raised, which says "unsupported startup parameter: options"

  Scenario: If transactions are stricter by default than the state expects, the error gives the remedy
    Given a PostgreSQL server behind a pooler in transaction mode
    And the transactions there are serializable by default
    When a state is opened there
    Then InvalidArgumentError is raised, which says "ALTER DATABASE"

  Scenario: A pooler without a free session is reported
    Given a PostgreSQL server behind a pooler in session mode that has one session
    And the time limit of connecting to PostgreSQL is 0.3 seconds
    When a state is opened there while another client has that session
    Then StateUnavailableError is raised, which says "default_pool_size"

  Scenario: A database whose encoding lacks characters is refused, with the remedy
    Given a PostgreSQL database that is encoded in LATIN1
    When a state is opened there
    Then InvalidArgumentError is raised, which says "ENCODING 'UTF8'"
