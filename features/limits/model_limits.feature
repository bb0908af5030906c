Feature: Calls of models keep to the limits of their providers

  # -- a provider on a real HTTP server, in virtual time

  @once
  Scenario Outline: 600 messages take hardly longer than a provider's limit of <limit> needs, counted by <counting>, and none is refused
    Given a provider that allows <limit> a minute, counted by <counting>
    And a bridge in virtual time that knows this limit
    When 600 messages call its model in <node>, 16 at a time
    Then all are answered, in at most 1/0.95 of the time that the provider needs
    And less than 1% of the calls were refused

    Examples:
      | limit        | counting         | node            |
      | 60 requests  | a sliding window | an async node   |
      | 60 requests  | fixed windows    | an async node   |
      | 60 requests  | a bucket         | an async node   |
      | 60 requests  | a sliding window | a sync node     |
      | 60 requests  | a sliding window | a plain function |
      | 50000 tokens | a sliding window | an async node   |
      | 50000 tokens | a bucket         | an async node   |

  @once @tdd_expected_fail
  Scenario: Plain retries with exponential waits keep to the same bound
    Given a provider that allows 60 requests a minute, counted by a sliding window
    And a bridge in virtual time whose calls are retried 50 times
    When 600 messages call its model in an async node, 16 at a time
    Then all are answered, in at most 1/0.95 of the time that the provider needs
    And less than 1% of the calls were refused

  # -- what a provider says

  @once
  Scenario Outline: A refusal with <headers> pauses its own key for <seconds> s, and no other
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When it answers a call with <status> and "<headers>", and calls of two models follow
    Then the next call of that model is <seconds> s later, and that of the other one at once

    Examples:
      | status | headers                                                                    | seconds |
      | 429    | retry-after: 30                                                            | 30      |
      | 429    | Retry-After: Tue, 24 Nov 2026 12:02:00 GMT                                 | 120     |
      | 503    | retry-after: 7                                                             | 7       |
      | 529    | retry-after: 3                                                             | 3       |
      | 429    | retry-after-ms: 1500; retry-after: 2                                       | 1.5     |
      | 429    | x-ratelimit-remaining-requests: 0; x-ratelimit-reset-requests: 6m0s        | 360     |
      | 429    | x-ratelimit-remaining-tokens: 0; x-ratelimit-reset-tokens: 1m2.5s; x-ratelimit-remaining-requests: 7; x-ratelimit-reset-requests: 1h | 62.5 |
      | 429    | x-ratelimit-remaining: 0; x-ratelimit-reset: 1795521645                    | 45      |
      | 429    | anthropic-ratelimit-tokens-remaining: 0; anthropic-ratelimit-tokens-reset: 2026-11-24T12:01:00Z | 60 |
      | 200    | x-ratelimit-remaining-requests: 0; x-ratelimit-reset-requests: 12s         | 12      |
      | 200    | x-ratelimit-remaining-requests: 5; x-ratelimit-reset-requests: 12s         | 0       |
      | 500    | retry-after: 30                                                            | 0       |
      | 503    | server: nothing                                                            | 0       |
      | 429    | retry-after: 1e300                                                         | 2592000 |
      | 429    | retry-after: Fri, 31 Dec 9999 23:59:59 GMT                                 | 2592000 |
      | 503    | retry-after: Mon, 01 Jan 99999999999999999999 00:00:00 GMT                 | 0       |
      | 200    | x-ratelimit-remaining: 0; x-ratelimit-reset: Mon, 01 Jan 2024 00:00:00 +99999999999999999999 | 0 |

  @once
  Scenario: A provider that refuses without saying for how long is left alone for longer each time
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When it answers 5 calls in a row with 429 and no headers
    Then each pause is random, between half of and all of twice the one before, from 1 s on

  @once
  Scenario: The calls at once fall to half when the provider refuses, and grow by one
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows 8 calls at once
    When 8 calls at once are refused, and 40 messages follow
    Then there were 4 calls at once, and then 5, 6, 7 and 8, each after as many answers

  @once
  Scenario: Tokens are reserved by an estimate, and corrected by what was used
    Given a provider that allows 10000 tokens a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When the estimate for each of 20 calls is 3000 tokens, and they use 1000
    Then 7 are made at once, where the estimates alone would allow 3, and none is refused

  @once
  Scenario: A call that is larger than the limit is made when nothing else counts
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows 100 tokens a minute
    When 3 calls of 5000 tokens are made
    Then they are made a minute apart

  @once
  Scenario: The key is what a function makes of the call: here, the tenant in the message
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows each tenant 1 request a minute
    When two tenants send 3 messages each, and 5 messages have no tenant
    Then those of each tenant are answered a minute apart, and those without one at once

  # -- retries

  @once
  Scenario Outline: A message whose model answers <status> is tried <attempts> times
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When a message is sent with 3 attempts, and its model answers <status> each time
    Then it was called <attempts> times

    Examples:
      | status | attempts |
      | 400    | 1        |
      | 401    | 1        |
      | 403    | 1        |
      | 404    | 1        |
      | 422    | 1        |
      | 429    | 3        |
      | 500    | 3        |
      | 503    | 3        |
      | 529    | 3        |

  @once
  Scenario: A retry waits as long as the server says, and not longer
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When a message is sent with 3 attempts, and its model asks to wait 90 s, and then answers
    Then it was called at 0 s and at 90 s, and has its answer

  @once
  Scenario: At most a tenth of the messages, and ten, are retried
    Given a provider that allows 100000 requests a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When 300 messages are sent with 4 attempts, and the provider answers 500 to all calls
    Then there were at most 340 calls

  @once
  Scenario Outline: A function of the program decides which failures are retried: <status>
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When a message is sent with 3 attempts for 404 alone, and its model answers <status> each time
    Then it was called <count> times

    Examples:
      | status | count |
      | 404    | 3     |
      | 500    | 1     |

  @once
  Scenario Outline: <Error> is <kind>
    Then an exception that is <error> is <kind>

    Examples:
      | Error                          | error                          | kind      |
      | urllib's 429                   | urllib's 429                   | transient |
      | urllib's 404                   | urllib's 404                   | permanent |
      | httpx's 503                    | httpx's 503                    | transient |
      | httpx's refused connection     | httpx's refused connection     | transient |
      | httpx's timeout                | httpx's timeout                | transient |
      | a botocore error with 429      | a botocore error with 429      | transient |
      | a botocore error with 400      | a botocore error with 400      | permanent |
      | a Google error with code 503   | a Google error with code 503   | transient |
      | an error caused by a 529       | an error caused by a 529       | transient |
      | a quota without money           | a quota without money           | permanent |
      | a TimeoutError                 | a TimeoutError                 | transient |
      | a RunTimeoutError              | a RunTimeoutError              | transient |
      | a pydantic ValidationError     | a pydantic ValidationError     | permanent |
      | a ValueError                   | a ValueError                   | permanent |
      | an error that causes itself    | an error that causes itself    | permanent |

  # -- the end of a call, and of a wait

  Scenario Outline: <What> gives its place back at once
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows 1 call at once
    When <what> is followed by another call, 10 s after it began
    Then that other call was made after 10 s, and no call is under way in the end

    Examples:
      | What                                   | what                                   |
      | A cancelled run                        | a cancelled run                        |
      | A run that times out                   | a run that times out                   |
      | A call that its node gives up          | a call that its node gives up          |
      | A call that fails                      | a call that fails                      |
      | A stream that its node leaves          | a stream that its node leaves          |
      | A stream that its node keeps as it ends | a stream that its node keeps as it ends |
      | A task that its node gives up          | a task that its node gives up          |

  Scenario Outline: A call that waits in <node> is no longer waited for once its run is <ended>
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And an open bridge whose model may be called once an hour
    When a run waits for its call in <node>, and is <ended>
    Then nothing waits for the model any more, and the run has ended

    Examples:
      | node          | ended                    |
      | an async node | cancelled                |
      | a sync node   | cancelled                |
      | a sync node   | out of time              |
      | an async node | cleaned up               |
      | a sync node   | cleaned up               |
      | an async node | ended with its bridge    |
      | a sync node   | ended with its bridge    |

  # -- nothing waits for itself

  Scenario Outline: With one call at once, <what> does not wait for itself
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows 1 call at once
    When 5 messages are sent to <what>
    Then all are answered, and no call is under way in the end

    Examples:
      | what                                                |
      | a node that calls the model while it reads a stream |
      | a model that calls a model                          |
      | a node that asks for 3 answers in one call          |
      | a node that makes 4 calls at once                   |
      | a sync node that calls 4 in threads                 |
      | an async node that calls the model synchronously    |
      | a node that sends a message, which calls the model  |

  Scenario: Two bridges that share their limits take turns
    Given a provider that allows 60 requests a minute, counted by a sliding window
    When two bridges on their own loops share a limit of 1 call at once, for 40 calls
    Then all are answered, and never more than one was under way

  # -- what others bring

  Scenario Outline: <What> arrives as it is, and its call is over
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows 1 call at once
    When a model raises <what>, in an async node and in a sync node
    Then the message has failed with that, both times, and no call is under way

    Examples:
      | What                                   | what                                   |
      | An error whose attributes raise        | an error whose attributes raise        |
      | An error whose headers are a number    | an error whose headers are a number    |
      | An error whose status is a text        | an error whose status is a text        |

  Scenario Outline: A clock that raises fails a call that is <ended>, and the call is over
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows 1 call at once, with a clock that raises
    When a message calls a model that is <ended>, in an async node and in a sync node
    Then both messages have failed with the exception of the clock, and no call is under way

    Examples:
      | ended    |
      | answered |
      | refused  |

  @once
  Scenario Outline: An answer of at most <most> tokens is taken for one of any length
    Given a provider that allows 10000 tokens a minute, counted by a sliding window
    And a bridge in virtual time that knows this limit
    When 40 calls ask for answers of at most <most> tokens, and get 500
    Then none is refused

    Examples:
      | most |
      | -1   |
      | 0    |

  @once
  Scenario Outline: A function that counts <what> tokens fails the call
    Given a provider that allows 1000 tokens a minute, counted by a sliding window
    And a bridge in virtual time whose function counts <what> tokens
    When a message is sent to an async node that calls the model
    Then it fails with an InvalidArgumentError, and the model was not called

    Examples:
      | what     |
      | negative |
      | half     |
      | no       |

  Scenario: In a forked child, no call waits for those of its parent
    When a run waits for its call, and the process forks
    Then in the child, the limits know of no calls

  @once @counted_references
  Scenario: A run whose calls were counted is freed with its last reference
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And an open bridge that counts usage, where a million tokens of "small" cost 2 and 10, and of "large" 20 and 100
    When 20 messages are answered, while the garbage collector is off
    Then no message or exception of theirs is left

  @once
  Scenario: Thousands of calls wait, and are all cancelled
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time that allows 1 call at once, and 2000 runs
    When 2000 messages wait for a model that takes forever, and are cancelled
    Then no call is under way, and none waits

  # -- the window

  @once
  Scenario: Whatever the requests, no interval has more than the limit, and a call that waits as long as requested finds room
    Then random requests and corrections keep to a sliding window

  @once @tdd_expected_fail
  Scenario: A bucket that is refilled evenly keeps to a sliding window
    Then random requests to a bucket keep to a sliding window

  @once
  Scenario: After a clock that was an hour ahead is put right, calls need not wait for that hour
    When a window of one request in 60 s is used at 3600 s, and again at 5 s
    Then there was room for both, and at 6 s one has to wait for a minute

  # -- arguments

  @once
  Scenario Outline: <what> is refused
    Then limits with <what> raise <error>

    Examples:
      | what                       | error                |
      | no requests                | InvalidArgumentError |
      | half a request             | InvalidArgumentError |
      | an interval of 0 s         | InvalidArgumentError |
      | a number instead of limits | InvalidTypeError     |
      | an empty mapping           | InvalidArgumentError |
      | a key that is not a function | InvalidTypeError     |
      | a file name as a state     | InvalidTypeError     |
      | no attempts                | InvalidArgumentError |
      | a limit for the bridge     | InvalidTypeError     |

  @once
  Scenario: Of 10,000 keys that nothing uses any more, one is forgotten for each new one
    When calls of 10001 keys ask for their limits
    Then there are figures of 10000 keys, and none of the first key

  @once
  Scenario: Of more than 10,000 keys those are forgotten whose calls count no more, and no others
    When calls of 10100 keys are made, and refused for a second
    Then there are figures of 10100 keys, as all of them count
    When a minute has passed, and calls of 10100 other keys are made
    Then there are figures of 10100 keys, and none of the first ones

  Scenario: A key that is not a string fails the call, in coroutines and in threads
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And a bridge in virtual time whose function of the key returns 7
    Then in an async node and in a sync node, a message fails with an InvalidTypeError, uncalled
