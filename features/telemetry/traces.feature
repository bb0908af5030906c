Feature: Traces show the way of each message, and nothing of what it says

  Background:
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2, overflow="drop_newest"
    And traces of the bridge

  Scenario: A message has a span, its run one below that, and nodes and their own spans below the run
    When a message is sent in a span, to a graph of an async and a sync node with spans of their own
    Then these are the spans
      """
      request
        message pair
          invoke_workflow pair
            inside first
            inside second
            node first
            node second
      """
    And the span of the run follows the conventions, and that of the message has its wait

  Scenario Outline: The message of a second stage is linked to that of the first, where <way>
    When a message goes through two stages, where <way>
    Then the message of the second stage is linked to that of the first, and is <place>

    Examples:
      | way                                         | place                       |
      | the result goes on as it is                 | below the run of the first  |
      | the result goes on in another thread        | the root of its own trace   |
      | a message is made of the result             | below the run of the first  |
      | the second stage is on another bridge       | below the run of the first  |

  Scenario Outline: It is linked though it ends before the hooks of the first are told, where <way>
    When the observer of 50 results sends each on to another bridge and awaits that, where <way>
    Then each of 50 messages of the second stage is linked to the message of its own first

    Examples:
      | way                                          |
      | the result goes on as it is                  |
      | a message is made of the result              |
      | each message goes to another graph, too      |
      | the observer has a span of its own           |

  Scenario: Of a message that goes to two graphs at once, each result is linked to its own run
    When the results of two graphs on the same 20 messages go on in another thread
    Then each of 40 messages is linked to the message of the graph that its content names

  Scenario Outline: A message whose metadata <names> has <count> links
    When a message is sent whose metadata has <traceparent> as its traceparent
    Then the message has <count> links
    And no span is open

    Examples:
      | names                | traceparent                                               | count |
      | names a span         | "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" | 1     |
      | names no span        | "00-00000000000000000000000000000000-b7ad6b7169203331-01" | 0     |
      | has text             | "a" * 100_000                                             | 0     |
      | has something else   | ["00", 7]                                                 | 0     |

  Scenario: A span that is begun before its message is sent is the span of that message
    When a span is begun for a message, whose ids are kept, and then that is sent below another one
    Then these are the spans
      """
      elsewhere
      here
        message answer
          invoke_workflow answer
            node node
      """
    And the span of the message has the ids that were kept, the graph's name and its wait
    And no span is open

  Scenario: A message that is sent again is linked to the span of the first attempt
    When a message fails, and is sent again with the ids of the span that was begun for it
    Then the second span of the message is linked to the first

  Scenario Outline: A span that was begun for a message that is not sent <ends>
    When a span is begun for a message, and <what>
    Then no span is open

    Examples:
      | ends                         | what                          |
      | is ended when it is given up | it is abandoned, twice        |
      | is ended with the others     | the traces are closed         |
      | is ended by a second one     | begun again, and abandoned    |

  Scenario: A message that a node sends is below the run of that node, without a link
    When a node sends a message and awaits its result
    Then these are the spans
      """
      message outer
        invoke_workflow outer
          message inner
            invoke_workflow inner
              node answer
          node ask
      """
    And no span has a link

  Scenario: Messages of four threads are each below the span of their thread, and their nodes below their runs
    Given an open bridge on its own loop with max_concurrency=16
    And traces of the bridge
    When 4 threads send 50 messages each, each thread in a span of its own, to a sync node with a span
    Then each of 200 traces of messages is below the span of its thread, and the node's span below its run

  Scenario: A retried run tells its attempts
    When a graph whose node fails once is retried
    Then the spans of its nodes are of the attempts "1 error, 2 ok", and its run says 2 attempts

  Scenario: The nodes of a subgraph are named with their path
    When a graph runs a sync node, then a subgraph whose second node fails
    Then the nodes with spans are "sync ok, outer|inner ok, outer|bad error, outer error"

  Scenario Outline: A message that <what> ends with the status <status>
    When the hooks hear of a message that <what>
    Then its spans are "<spans>", with the status <status> and the error type "<error>"
    And no span is open

    Examples:
      | what                                  | status      | spans       | error                                |
      | is answered                           | ok          | message run |                                      |
      | fails                                 | error       | message run | ValueError                           |
      | is a result that passes through       | error       | message     | ValueError                           |
      | is cancelled before its start         | cancelled   | message     |                                      |
      | is cancelled when it runs             | cancelled   | message run |                                      |
      | times out                             | timed_out   | message run | rxlanggraph.errors.RunTimeoutError   |
      | is dropped                            | rejected    | message     | rxlanggraph.errors.RunDroppedError   |
      | is refused because its thread is busy | rejected    | message     | rxlanggraph.errors.ThreadBusyError   |
      | is interrupted before its start       | interrupted | message     |                                      |
      | asks                                  | interrupted | message run |                                      |
      | comes after the close                 | rejected    | message     | rxlanggraph.errors.BridgeClosedError |
      | runs when the loop stops              | cancelled   | message run |                                      |
      | comes during a cleanup                | cancelled   | message     |                                      |

  Scenario Outline: Of thousands of messages under faults no span is left open, where <fault>
    Given an open bridge on its own loop with max_concurrency=4, max_pending=8
    And traces of the bridge
    When 4 threads send 600 messages that fail, time out, are cancelled and refused, and halfway <fault>
    Then no span is open
    And as many messages have a span as were sent

    Examples:
      | fault             |
      | nothing happens   |
      | a cleanup begins  |
      | the bridge closes |
      | the loop stops    |

  Scenario: Nothing that a message, its metadata, its answer or an exception says is in a span
    When messages with a secret everywhere are answered, asked, refused and failed
    Then the secret is in none of the 4 spans of runs, nor in any other

  Scenario: With content=True it is: in the input, the output and the texts of exceptions
    Given traces of the bridge with content=True
    When messages with a secret everywhere are answered, asked, refused and failed
    Then the secret is in the input, the output and the texts of exceptions

  Scenario: Content that cannot be described leaves no span open
    Given traces of the bridge with content=True
    When messages with content that raises, or contains itself, are answered
    Then no span is open
    And the inputs are described by their types

  Scenario: Without nodes there are no spans of nodes, and no callbacks
    Given an open bridge on its own loop
    And traces of the bridge with nodes=False
    When making callbacks is forbidden, and a message is sent
    Then these are the spans
      """
      message pair
        invoke_workflow pair
          inside first
          inside second
      """

  Scenario: Traces that were added twice make each span of a message once
    Given the same traces are added to the bridge again
    When the hooks hear of a message that is answered
    Then its spans are "message run", with the status ok and the error type ""
    And no span is open

  Scenario: Traces that are disposed of while a run is at work end its spans when they are closed
    When the traces are disposed of while a run is at work, and closed
    Then no span is open

  Scenario: Traces that are closed end all spans, though a span processor raises for each
    Given a span processor that raises at the end of each span
    When the traces are closed while 3 messages wait
    Then no span is open

  Scenario Outline: Spans that are begun for messages cost none of them, where <what>
    Given <what>
    When spans are begun for 4 messages, the last 2 of which are not sent after all
    Then the others are answered, and what was raised is logged once

    Examples:
      | what                                               |
      | a sampler that raises                              |
      | a span processor that raises at the end of each span |

  Scenario: Traces of two providers on one bridge link to their own spans
    Given traces of another provider, too
    When a message goes through two stages, where a message is made of the result
    Then in both providers the message of the second stage is linked to their own of the first

  Scenario: A child process that is forked in the middle of a message leaves no lock held
    When a process is forked while other threads send messages, and sends one on a bridge of its own
    Then the child has ended the spans of its message

  Scenario: A collector gets the spans by OTLP
    Given a receiver of OTLP
    When the spans of a message are exported to it
    Then it has got "message pair, invoke_workflow pair, node first, node second" of the scope rxlanggraph

  Scenario: A lone surrogate does not cost the other spans of its batch
    Given a receiver of OTLP
    When a message with lone surrogates in its name, content and error is exported with another
    Then both have arrived, with what could be encoded

  Scenario: Without an SDK messages are answered, and nothing is logged
    Given an open bridge on its own loop
    And traces and metrics of the bridge, where no SDK is set up
    When 20 messages go to a graph with an async node
    Then every future has a result
    And no warning was logged
    And a span that is begun has no ids

  Scenario Outline: <What> is refused as a provider
    When <call> is called with an argument that is not a provider
    Then InvalidTypeError is raised, which says "<says>"

    Examples:
      | What            | call       | says                             |
      | A meter's name  | RunMetrics | meter_provider must be           |
      | A tracer's name | RunTraces  | tracer_provider must be          |

  @once
  Scenario: Where OpenTelemetry's API is not installed, the import says which extra brings it
    When the part for telemetry is imported where the API is not installed
    Then MissingExtraError is raised, which says "pip install 'rxlanggraph[otel]'"
