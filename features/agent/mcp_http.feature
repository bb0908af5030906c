Feature: An HTTP server of agents answers allowed requests, and no others

  # -- hosts and origins -------------------------------------------------------------------------

  Scenario Outline: Listening on <address>, a server requested as <asked> answers with status <status>
    Given serve_http listens on <address>
    When it is asked as <asked>
    Then the status is <status>

    Examples:
      | address     | asked              | status |
      | 127.0.0.1   | 127.0.0.1:8000     | 200    |
      | 127.0.0.1   | localhost          | 200    |
      | 127.0.0.1   | [::1]:8000         | 200    |
      | 127.0.0.1   | LocalHost:8000     | 200    |
      | 127.0.0.1   | evil.example:8000  | 421    |
      | 127.0.0.1   | localhost.evil     | 421    |
      | 127.0.0.2   | 127.0.0.2:8000     | 200    |
      | 127.0.0.2   | 127.0.0.2          | 200    |
      | 127.0.0.2   | localhost:8000     | 200    |
      | 127.0.0.2   | evil.example:8000  | 421    |
      | 0.0.0.0     | localhost:8000     | 200    |
      | 0.0.0.0     | evil.example:8000  | 421    |
      | 0.0.0.0     | 0.0.0.0:8000       | 421    |
      | ::          | [::1]:8000         | 200    |
      | ::          | evil.example:8000  | 421    |
      | fd00::1     | [fd00::1]:8000     | 200    |
      | fd00::1     | evil.example:8000  | 421    |
      | Own.Example | own.example:8000   | 200    |

  Scenario Outline: Allowing <hosts>, a server requested as <asked> answers with status <status>
    Given serve_http allows the hosts <hosts>
    When it is asked as <asked>
    Then the status is <status>

    Examples:
      | hosts                       | asked             | status |
      | agents.example              | agents.example    | 200    |
      | agents.example              | agents.example:80 | 200    |
      | agents.example              | localhost:8000    | 421    |
      | agents.example:81           | agents.example:81 | 200    |
      | agents.example:81           | agents.example:82 | 421    |
      | Agents.Example              | agents.example    | 200    |
      | Agents.Example              | AGENTS.example    | 200    |
      | agents.example, fd00::1     | [fd00::1]:8000    | 200    |
      | no host                     | localhost:8000    | 421    |

  Scenario Outline: Requested by a page from <origin>, a server that <allows> answers with status <status>
    Given serve_http <allows>
    When it is asked by a page from <origin>
    Then the status is <status>

    Examples:
      | allows                              | origin                   | status |
      | allows no origins by name           | http://127.0.0.2:8000    | 200    |
      | allows no origins by name           | https://localhost        | 200    |
      | allows no origins by name           | HTTP://LocalHost:8000    | 200    |
      | allows no origins by name           | http://evil.example      | 403    |
      | allows no origins by name           | null                     | 403    |
      | allows the origins https://a.example | https://a.example       | 200    |
      | allows the origins https://a.example | http://a.example        | 403    |
      | allows the origins https://a.example | http://localhost:8000   | 403    |

  # -- tokens ------------------------------------------------------------------------------------

  Scenario Outline: With <token>, a request that brings <brought> has status <status>
    Given serve_http asks for <token>
    When it is asked with <brought>
    Then the status is <status>

    Examples:
      | token                  | brought                      | status |
      | no token               | no token                     | 200    |
      | the token s3cret       | no token                     | 401    |
      | the token s3cret       | the token s3cret             | 200    |
      | the token s3cret       | the token s3cre              | 401    |
      | the token s3cret       | the token s3crets            | 401    |
      | the token s3cret       | the token S3CRET             | 401    |
      | the token s3cret       | the token s3crét             | 401    |
      | the token s3cret       | no bearer but s3cret         | 401    |
      | the SDK's verifier     | the token of ada             | 200    |
      | the SDK's verifier     | the token s3cret             | 401    |
      | the SDK's verifier     | no token                     | 401    |
      | a verifier with scopes | the token of ada             | 200    |
      | a verifier with scopes | the token of ben             | 403    |
      | a verifier that hangs  | the token of ada             | 500    |
      | a verifier that fails  | the token of ada             | 500    |

  Scenario: A token is compared in constant time
    Given serve_http asks for the token s3cret
    When it is asked with the token s3cre
    Then the tokens were compared by hmac.compare_digest

  Scenario: If other machines can connect without a token, the log warns
    When serve_http without a token listens on 0.0.0.0
    Then the log warns "pass a token"

  # -- what is refused ---------------------------------------------------------------------------

  Scenario Outline: serve_http is refused <what>
    When serve_http is called, and <argument> is <value>
    Then <error> is raised, which says "<argument>"

    Examples:
      | what                        | argument        | value               | error                |
      | a token that is empty       | token           | ""                  | InvalidArgumentError |
      | a token with a blank        | token           | "s3 cret"           | InvalidArgumentError |
      | a token with a line's end   | token           | "s3cret\n"          | InvalidArgumentError |
      | a token that is not ASCII   | token           | "s3crét"            | InvalidArgumentError |
      | a token that is bytes       | token           | b"s3cret"           | InvalidTypeError     |
      | settings without a token    | auth            | {}                  | InvalidArgumentError |
      | a host that is not a list   | allowed_hosts   | "localhost"         | InvalidTypeError     |
      | a host that is a URL        | allowed_hosts   | ["http://a"]        | InvalidArgumentError |
      | a host that is all          | allowed_hosts   | ["*"]               | InvalidArgumentError |
      | a host that is empty        | allowed_hosts   | [""]                | InvalidArgumentError |
      | an origin that is a host    | allowed_origins | ["a.example"]       | InvalidArgumentError |
      | an origin with a path       | allowed_origins | ["http://a/"]       | InvalidArgumentError |
      | no connections              | max_connections | 0                   | InvalidArgumentError |
      | no sessions                 | max_sessions    | 0                   | InvalidArgumentError |
      | no time for the header      | header_timeout  | 0                   | InvalidArgumentError |
      | no time for the body        | body_timeout    | -1                  | InvalidArgumentError |
      | no time for a session       | session_timeout | None                | InvalidArgumentError |

  Scenario: The error for a refused token does not show it
    When serve_http is called, and token is "s3 cret"
    Then neither the error nor its causes show s3 cret

  # -- connections -------------------------------------------------------------------------------

  Scenario: A client that does not read the last of its answer keeps its connection no longer than others
    Given an HTTP connection whose client reads nothing
    When it is answered, and is to be closed
    Then it is aborted, and its place is free
