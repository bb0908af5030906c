@once
Feature: A web application embeds the bridge

  `examples/web_service.py`, behind a real server, with real clients.

  # -- answers and tokens

  Scenario: Prompts are answered, and a conversation remembers them
    Given the web service
    When "Hello" and "And now?" are sent to ada, one after the other
    Then both were answered with what the fake model says back
    And the conversation of ada has these four messages

  Scenario Outline: <what> is refused, and starts no run
    Given the web service
    When a web client sends <what>
    Then the web service refuses that, and has started no run

    Examples:
      | what                     |
      | an empty text            |
      | a text of 4001 letters   |
      | an unknown field         |
      | an unknown strategy      |
      | an unknown disconnection |
      | a text that UTF-8 cannot hold |
      | a field that UTF-8 cannot hold |
      | lists in 5000 lists      |
      | no JSON                  |
      | a thread id with a dot   |
      | a thread id of 65 letters |
      | a malformed interrupt id |
      | a malformed event id     |
      | no event id              |

  Scenario: Tokens arrive while the model is still speaking
    Given the web service, whose model says 20 tokens and waits before 5
    When a stream of ada is read up to the token 4, and the model goes on
    Then the client has got each of the 20 tokens once, in order, and the result

  Scenario: While the model is silent, the stream pings, and loses no token by that
    Given the web service, whose model says 20 tokens and waits before 5, and which pings every 0.02 seconds
    When a stream of ada is read until it has pinged twice, and the model goes on
    Then the client has got each of the 20 tokens once, in order, and the result

  Scenario: The statuses of errors are those that the document lists
    Given the web service
    Then each row of statuses in docs/web.md is one of the example, and none is missing

  # -- clients that leave

  Scenario Outline: With on_disconnect="cancel", a client that leaves <what> ends its run
    Given the web service, whose model says 20 tokens and waits before <before>
    When a client with on_disconnect="cancel" leaves <what>
    Then its run is cancelled, and nothing is in flight

    Examples:
      | what                            | before |
      | a stream after 3 tokens         | 3      |
      | a stream before its first token | 0      |
      | an answer                       | 3      |
      | a stream that is queued         | 0      |
      | an answer that is queued        | 0      |

  @tdd_expected_fail
  Scenario: Control: a service that does not listen for disconnects does not end the run
    Given the web service, whose model says 20 tokens and waits before 3
    And it does not listen for disconnects while it makes an answer
    When a client with on_disconnect="cancel" leaves an answer
    Then its run is cancelled, and nothing is in flight

  Scenario Outline: With on_disconnect="continue", a client that leaves <what> leaves its run alone
    Given the web service, whose model says 20 tokens and waits before <before>
    When a client with on_disconnect="continue" leaves <what>
    Then its run is still in flight
    And when the model goes on, the conversation has its 20 tokens

    Examples:
      | what                            | before |
      | a stream after 3 tokens         | 3      |
      | a stream before its first token | 0      |
      | an answer                       | 3      |
      | a stream that is queued         | 0      |

  # -- clients that come back

  Scenario: A client that loses its connection again and again gets each token once
    Given the web service, whose model says 200 tokens and waits before each tenth
    When a client of a stream leaves at 60 random tokens, and comes back with Last-Event-ID
    Then the client has got each of the 200 tokens once, in order, and the result

  Scenario: A client that knows only the id of its message, from /chat/ada, gets all tokens
    Given the web service, whose model says 20 tokens and waits before 5
    When a client with on_disconnect="continue" leaves a stream after 3 tokens
    And it comes back with the id of the run in the conversation, and the model goes on
    Then the client has got each of the 20 tokens once, in order, and the result

  Scenario: Two clients may follow one run
    Given the web service, whose model says 20 tokens and waits before 5
    When a stream of ada is followed by a second client from its 2nd token on
    Then both have got what follows, each token once, and the result

  Scenario Outline: A client that comes back to <what> gets 410
    Given the web service, whose model says 20 tokens and waits before 19, and which keeps 16
    When a client comes back to <what>
    Then the web service answers 410 with "ChunksLostError"

    Examples:
      | what                         |
      | tokens that have left        |
      | a run that has ended         |
      | a run of another thread      |
      | a run that it has never seen |

  Scenario: The conversation has the answer of a run that cannot be joined any more
    Given the web service, whose model says 20 tokens and waits before 19, and which keeps 16
    When a client comes back to a run that has ended
    Then the conversation has its 20 tokens

  Scenario: A client that is slower than the run that it has joined gets a lost event
    Given the web service, whose model says 400 long tokens and waits before 2, and which keeps 16
    When a client comes back, reads one token, and pauses until the run has ended
    Then its stream ends with "lost", behind tokens without a gap

  # -- back-pressure and busy threads

  Scenario Outline: When the backlog is full, <route> gets 429 and Retry-After; then there is room
    Given the web service, whose model says 20 tokens and waits before 0, with max_concurrency=1, max_pending=2
    When 3 clients wait, and one more asks for <route>
    Then the web service answers 429 with "BacklogFullError", and when to try again
    And when the model goes on, all 3 are answered, and so is the next one

    Examples:
      | route     |
      | an answer |
      | a stream  |

  Scenario Outline: On a busy thread, <route> with "reject" gets 409
    Given the web service, whose model says 20 tokens and waits before 3
    When ada's thread is busy, and <route> is asked for with multitask_strategy="reject"
    Then the web service answers 409 with "ThreadBusyError"

    Examples:
      | route     |
      | an answer |
      | a stream  |

  Scenario: With "interrupt", a stream in progress ends as interrupted, and the newer request is answered
    Given the web service, whose model says 20 tokens and waits before 3
    When a stream of ada has begun, and a newer request interrupts it
    Then the stream ends with the status "interrupted"
    And the newer request is answered once the model goes on

  # -- questions

  Scenario Outline: A question is answered once: the second answer, by <second>, gets 409
    Given the web service
    When ada asks for a refund by <first>, and it is granted twice, the second time by <second>
    Then the question came with the first response, the refund with the second
    And the web service answers 409 with "StaleResumeError"

    Examples:
      | first     | second    |
      | an answer | an answer |
      | a stream  | a stream  |

  Scenario: Of 20 answers at once, one is accepted
    Given the web service
    When ada asks for a refund, and 20 clients answer at once
    Then one of them gets 200, and 19 get 409

  Scenario: A prompt on a thread that waits for an answer gets 409, and the question
    Given the web service
    When ada asks for a refund, and then for something else
    Then the web service answers 409 with "PendingInterruptError"
    And the question came with it, and is in the conversation

  # -- failures

  Scenario Outline: A model that fails before its first token: <route> gets 500, without the reason
    Given the web service, whose model fails before token 0
    When a web client asks for <route>
    Then the web service answers 500, and does not say why

    Examples:
      | route     |
      | an answer |
      | a stream  |

  Scenario: A model that fails later ends the stream with the status, without the reason
    Given the web service, whose model fails before token 3
    When a web client asks for a stream
    Then it got 3 tokens, and then the status "error" of a "LookupError"
    And it does not say why

  Scenario Outline: A run that takes too long: <route> gets 504
    Given the web service, whose model says 20 tokens and waits before 0, with timeout=0.2
    When a web client asks for <route>
    Then the web service answers 504 with "RunTimeoutError"

    Examples:
      | route     |
      | an answer |
      | a stream  |

  Scenario Outline: When the bridge is closed, <route> gets 503 and Retry-After
    Given the web service
    When its bridge is closed, and a web client asks for <route>
    Then the web service answers 503 with "BridgeClosedError", and when to try again

    Examples:
      | route     |
      | an answer |
      | a stream  |

  # -- looking inside

  Scenario: What is in flight can be seen, and is gone afterwards
    Given the web service, whose model says 20 tokens and waits before 3
    When a stream of ada has begun, and its service is looked at
    Then /health counts 1 run, and /runs shows that of ada at its node "answer"

  # -- many at once

  Scenario Outline: 200 clients at once, of which some leave at random: those that stay are served
    Given the web service on <loop>, whose model says 12 tokens, with max_concurrency=8, max_pending=<room>
    When 200 clients come at once, and a third of them leaves at random points
    Then each that has stayed has got its whole answer, or 429 if <room> may wait
    And nothing is left of them: no run, no task, no thread, no connection

    Examples:
      | room | loop    |
      | 400  | asyncio |
      | 20   | asyncio |
      | 400  | uvloop  |

  # -- the end

  Scenario: SIGTERM lets a stream end; nothing new is accepted meanwhile
    Given the web service in a process of its own, whose model waits before token 3
    When that process gets SIGTERM while a client has got 3 tokens, and the model goes on
    Then the client has got each of the 20 tokens once, in order, and the result
    And the process has ended, and what was said is saved

  Scenario: SIGTERM drains runs whose clients have left
    Given the web service in a process of its own, whose model waits before token 3
    When a client has left its run to itself, it gets SIGTERM, and the model goes on
    Then the process has ended, and what was said is saved

  Scenario: A client that does not end in time is cut off, and its run drained if it may continue
    Given the web service in a process of its own, whose model waits before token 3
    When that process gets SIGTERM, and a client whose run may continue stays until it is cut off
    Then the process has ended, and what was said is saved

  Scenario: A run that does not end is cancelled at last
    Given the web service, whose model says 20 tokens and waits before 3, and which drains for 0.2 seconds
    When a client with on_disconnect="continue" leaves a stream after 3 tokens
    And the web service is stopped
    Then its run was cancelled
