Feature: However a connection dies, a call is repeated or raises a documented error

  A network ends a connection cleanly or by a reset, while it is idle or in the middle of a
  request or of its answer; what stands between may answer in its place. Each time each method of a
  state is called.

  @valkey
  Scenario Outline: With Valkey every call is answered though its connection dies <when>, by <an end>
    Given an empty store in Valkey
    When each method of a state is called while its connection dies <when>, by <an end>
    Then each call was answered, as if nothing had happened
    And the next call was answered

    Examples:
      | when             | an end   |
      | idle             | FIN      |
      | idle             | RST      |
      | idle             | nonsense |
      | mid-request      | FIN      |
      | mid-request      | RST      |
      | mid-request      | nonsense |
      | before the reply | FIN      |
      | before the reply | RST      |
      | before the reply | nonsense |
      | mid-reply        | FIN      |
      | mid-reply        | RST      |

  @valkey
  Scenario: At whatever step of the loop a reset is noticed, no other connection of the loop suffers
    Given an empty store in Valkey
    When two calls are made after a reset of all connections, noticed for 0 to 9 steps of the loop
    Then the calls have counted to 20

  @postgresql
  Scenario Outline: With PostgreSQL every call is answered though its connection dies idle, by <an end>
    Given an empty store in PostgreSQL
    When each method of a state is called while its connection dies idle, by <an end>
    Then each call was answered, as if nothing had happened
    And the next call was answered

    Examples:
      | an end   |
      | FIN      |
      | RST      |
      | nonsense |

  @postgresql
  Scenario Outline: With PostgreSQL a call whose connection dies <when>, by <an end>, is answered or in doubt
    Given an empty store in PostgreSQL
    When each method of a state is called while its connection dies <when>, by <an end>
    Then each call was answered as if nothing had happened, or has told that it is in doubt
    And the next call was answered

    Examples:
      | when             | an end   |
      | mid-request      | FIN      |
      | mid-request      | RST      |
      | mid-request      | nonsense |
      | before the reply | FIN      |
      | before the reply | RST      |
      | before the reply | nonsense |
      | mid-reply        | FIN      |
      | mid-reply        | RST      |

  @valkey @postgresql
  Scenario Outline: Opening a state in <backend> while its connection dies <when>, by <an end>, raises
    Given an empty store in <backend>
    When a state is opened there while its connection dies <when>, by <an end>
    Then the error leaves no doubt whether the call had an effect

    Examples:
      | backend    | when             | an end   |
      | Valkey     | mid-request      | FIN      |
      | Valkey     | mid-request      | RST      |
      | Valkey     | before the reply | FIN      |
      | Valkey     | before the reply | RST      |
      | Valkey     | before the reply | nonsense |
      | Valkey     | mid-reply        | RST      |
      | PostgreSQL | mid-request      | FIN      |
      | PostgreSQL | mid-request      | RST      |
      | PostgreSQL | before the reply | FIN      |
      | PostgreSQL | before the reply | RST      |
      | PostgreSQL | before the reply | nonsense |
      | PostgreSQL | mid-reply        | RST      |

  @valkey @postgresql
  Scenario Outline: A call that <backend> will always refuse raises InvalidArgumentError, and affects no other
    Given a store that refuses one key, in <backend>
    When that key is set, while 20 others are set
    Then InvalidArgumentError is raised, which says "<why>"
    And the 20 others are there

    Examples:
      | backend    | why              |
      | SQLite     | refuses the call |
      | PostgreSQL | refuses the call |
      | Valkey     | WRONGTYPE        |

  @valkey @postgresql
  Scenario Outline: Names of any characters are kept, though the URL asks for another encoding: <option>
    Given an empty store in <backend>
    When tasks with names of any characters are claimed over "<option>"
    Then all of their names are as they were

    Examples:
      | backend    | option                  |
      | Valkey     | encoding=latin-1        |
      | Valkey     | encoding=ascii          |
      | Valkey     | encoding_errors=ignore  |
      | PostgreSQL | client_encoding=latin1  |
      | PostgreSQL | client_encoding=UTF8    |

  @valkey
  Scenario Outline: An option that redis-py does not accept is named: <option>
    Given an empty store in Valkey
    When a state is opened over "<option>"
    Then InvalidArgumentError is raised, which says "redis-py cannot use the URL"

    Examples:
      | option             |
      | protocol=1         |
      | retry=3            |
      | connection_class=x |
