Feature: Shared state on servers as they are deployed: with TLS, password files, several addresses, Sentinels

  # -- PostgreSQL ----------------------------------------------------------------------------------

  @postgresql @libpq_tls
  Scenario: PostgreSQL over TLS counts, and the server's certificate was checked
    Given a PostgreSQL server that speaks TLS
    When a state counts over TLS that is checked by the authority of the certificate
    Then it has counted, encrypted

  @postgresql @libpq_tls
  Scenario: A certificate of PostgreSQL from another authority is refused, and not tried again
    Given a PostgreSQL server that speaks TLS
    When a state counts over TLS that is checked by another authority
    Then InvalidArgumentError is raised, which says "certificate verify failed"

  @postgresql @libpq_tls
  Scenario: A certificate of PostgreSQL for another name is refused, and not tried again
    Given a PostgreSQL server that speaks TLS
    When a state counts over TLS that is checked, at a name that the certificate does not have
    Then InvalidArgumentError is raised, which says "does not match host name"

  @postgresql
  Scenario Outline: The password of PostgreSQL comes from <a place>, and is in no URL
    Given a PostgreSQL server that asks for a password
    When a state counts at a URL without it, and <a place> has it
    Then it has counted

    Examples:
      | a place                   |
      | the password file         |
      | a service of the URL      |
      | a service of the environment |

  @postgresql
  Scenario: Without the password, the state is refused at opening
    Given a PostgreSQL server that asks for a password
    When a state counts at a URL without it, and nothing has it
    Then InvalidArgumentError is raised, which says "no password supplied"

  @postgresql
  Scenario: Of several addresses of PostgreSQL, the one that answers is used, and the next when it goes
    Given a PostgreSQL server at two addresses, behind one that is dead
    When a state counts, and the address that it uses goes in the middle
    Then each increment that was answered was counted once

  # -- Redis and Valkey ----------------------------------------------------------------------------

  @valkey
  Scenario: Valkey over TLS counts, and the server's certificate was checked
    Given a Valkey server that speaks TLS
    When a state counts over TLS that is checked by the authority of the certificate
    Then it has counted, encrypted

  @valkey
  Scenario: A certificate of Valkey from another authority is refused
    Given a Valkey server that speaks TLS
    When a state counts over TLS that is checked by another authority
    Then StateUnavailableError is raised, which says "certificate verify failed"

  @valkey
  Scenario: A user of the ACL with the rights that docs/state.md names can do everything
    Given a Valkey server of its own with a user who has the rights that docs/state.md names
    When that user makes every write and read of a state
    Then nothing was refused

  @valkey
  Scenario: A user of the ACL for other keys is refused, and told which
    Given a Valkey server of its own with a user who has these rights for other keys
    When that user makes every write and read of a state
    Then InvalidArgumentError is raised, which says "No permissions to access a key"

  @valkey
  Scenario: Through Sentinels, a state outlives its primary: what a replica has confirmed is there
    Given a primary, its replica, and Sentinels of which the first is dead
    When a state with wait_replicas=1 counts, and the primary is killed in the middle
    Then each increment that was answered is in the counter of the promoted replica

  @valkey @tdd_expected_fail
  Scenario: Without waiting for replicas, what the primary alone has is lost with it
    Given a primary, its replica, and Sentinels of which the first is dead
    When a state without it counts while the replica is cut off, and the primary is killed
    Then each increment that was answered is in the counter of the promoted replica

  @valkey
  Scenario: A call that no replica confirms is in doubt
    Given a primary, its replica, and Sentinels of which the first is dead
    When a state with wait_replicas=1 counts while the replica stands still
    Then the call has raised StateUnavailableError, in doubt, which says "0 of 1 replicas"
    And it goes on counting when the replica does

  @valkey
  Scenario: A request that is sent again waits for replicas too
    Given a primary, its replica, and Sentinels of which the first is dead
    When the answer to a request is lost while the replica stands still, and it is sent again
    Then the call has raised StateUnavailableError, in doubt, which says "0 of 1 replicas"

  Scenario Outline: <What> of a Redis URL is refused, with the remedy
    When the code under test opens a state at <url>
    Then InvalidArgumentError is raised, which says "<words>"

    Examples:
      | What                      | url                                     | words                                    |
      | A service without a name  | redis+sentinel://127.0.0.1:26379/       | the name by which the Sentinels know     |
      | A database without a name | redis+sentinel://127.0.0.1:26379        | such as /mymaster                        |
      | A number of replicas      | redis://127.0.0.1:1/0?wait_replicas=all | wait_replicas in the Redis URL           |
      | Another kind of Sentinel  | redis+other://127.0.0.1:1/m             | cannot                                   |
