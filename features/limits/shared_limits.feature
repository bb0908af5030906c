Feature: Processes that share their limits in a state have one limit together

  @once
  Scenario: Two bridges that share a limit use hardly less of it than one would, and hardly any call is refused
    Given a provider that allows 60 requests a minute, counted by a sliding window
    And two bridges in virtual time that know this limit, and share it in a state
    When each of them gets 150 messages
    Then all 300 are answered, in at most 1/0.95 of the time that the provider needs, and less than 1% were refused

  @once @tdd_expected_fail
  Scenario: Two bridges that each know the limit are refused as rarely
    Given a provider that allows 60 requests a minute, counted by a sliding window
    And two bridges in virtual time that know this limit
    When each of them gets 150 messages
    Then all 300 are answered, in at most 1/0.95 of the time that the provider needs, and less than 1% were refused

  Scenario: A pause that one bridge is asked for holds for the other too
    Given a provider that allows 600 requests a minute, counted by a sliding window
    And two bridges in virtual time that know this limit, and share it in a state
    When one of them is refused for 40 s, and 1 s later the other gets a message
    Then the other has called after 40 s

  Scenario: Tokens that one bridge did not use are left to the other
    Given a provider that allows 4000 tokens a minute, counted by a sliding window
    And two bridges in virtual time that know this limit, and share it in a state
    When one of them reserves 3000 tokens and uses 100, and the other needs 3000
    Then the other has called within 2 s

  Scenario Outline: Two processes that share a limit in <backend> make as many calls together as one may
    Given a provider in real time
    When two processes that share a limit of 10 requests an hour in <backend> get 30 messages each
    Then they have made 10 calls together, in coroutines and in threads, and the others wait

    @once
    Examples:
      | backend |
      | SQLite  |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: If the loop of the state <ends>, a call in <node> fails, and none waits
    Given a provider that allows 600 requests a minute, counted by a sliding window
    And an open bridge whose limits are in a state on another loop
    When that loop <ends>, and a message calls the model in <node>
    Then the message fails with <error>, uncalled

    Examples:
      | ends                | node          | error                 |
      | has ended           | an async node | LoopUnavailableError  |
      | has ended           | a sync node   | LoopUnavailableError  |
      | has closed its state | an async node | StateClosedError     |
      | has closed its state | a sync node   | StateClosedError     |

  Scenario: A call waits for a state that does not answer, and fails after a minute of that
    Given a provider that allows 600 requests a minute, counted by a sliding window
    And an open bridge whose limits are in a state on another loop
    When the state does not answer once, and a message calls the model in an async node
    Then the model has answered
    When the state has not answered for a minute, and a message calls the model in a sync node
    Then the message has failed with a StateUnavailableError

  @once
  Scenario: A state that did not answer an hour ago has a minute to answer, as any other
    Given a provider that allows 600 requests a minute, counted by a sliding window
    And two bridges in virtual time that know this limit, and share it in a state
    When the state does not answer a call, which is cancelled, and an hour later not the next one
    Then that one has its answer within 2 s, as the state answers again

  Scenario: A run that is cancelled while the state answers leaves nothing behind
    Given a provider that allows 600 requests a minute, counted by a sliding window
    And an open bridge whose limits are in a state on another loop
    When 40 messages are cancelled while they ask the state
    Then none of them waits for the model any more

  @once
  Scenario Outline: What a call gives back is given back once, although <the write>
    Given a shared window in which a call has reserved 500 tokens
    When it gives back 400, but <the write>
    And another call reserves 50
    Then <count> tokens count

    Examples:
      | the write                                            | count |
      | the write is executed, and not answered              | 150   |
      | the write is lost, and so is the answer              | 150   |
      | the write is refused for certain                     | 150   |
      | its writer is cancelled when the write was executed  | 150   |
      | its writer is cancelled before the write is executed | 150   |

    Examples: too much counts, rather than too little
      | the write                                            | count |
      | the write is lost, and another one is made           | 557   |

  @once
  Scenario Outline: A pause holds, although <the write>
    Given a shared window in which a call has reserved 500 tokens
    When it is paused for 40 s, but <the write>
    Then another call has to wait

    Examples:
      | the write                                            |
      | the write is executed, and not answered              |
      | its writer is cancelled before the write is executed |
      | the write is lost, and another one is made           |

  Scenario Outline: A key of <kind> can be shared
    Given a provider that allows 600 requests a minute, counted by a sliding window
    And an open bridge whose limits are in a state on another loop
    When a message calls a model whose key is <kind>
    Then the model has answered

    Examples:
      | kind           |
      | no characters  |
      | 5000 letters   |
      | a NUL          |
      | lone surrogates |
