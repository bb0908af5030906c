Feature: A run has no parent: it inherits context variables, but not the config of the node that sent it

  @tdd_expected_fail
  Scenario: Plain "create_task": a graph started by a node runs as its subgraph, with the node's config
    Given a graph that asks and one that tells its config
    When a node of a graph with a checkpointer, tags and callbacks starts the other by plain "create_task"
    Then the other has neither the thread, the tags nor the callbacks of the node's graph

  Scenario Outline: A message sent by a node by <way> is a run of its own
    Given an open bridge on <home> loop
    And a graph that asks and one that tells its config
    When a node of a graph with a checkpointer, tags and callbacks sends by <way>
    Then the other has neither the thread, the tags nor the callbacks of the node's graph
    And the checkpointer of the node's graph knows its own thread alone

    Examples:
      | way                                    | home       |
      | create_future_task in an async node    | its own    |
      | create_future_task in an async node    | an adopted |
      | create_future_task in a sync node      | its own    |
      | create_future_task in a sync node      | an adopted |
      | a stream through invoke                | its own    |
      | a stream through invoke                | an adopted |
      | a RunnableLambda                       | its own    |
      | a plain function that calls the other  | its own    |

  Scenario: An interrupt of a graph to which a node has sent a message is an interrupt, and no error
    Given an open bridge on its own loop
    And a graph that asks and one that tells its config
    When a node sends to the graph that asks
    Then the run ends with its question

  Scenario Outline: <What> of the sender is copied into the run, from <where>
    Given an open bridge on its own loop
    When a sender with <what> sends from <where>
    Then the run has <what>

    Examples:
      | What                        | what                        | where               |
      | A context variable          | a context variable          | outside             |
      | A context variable          | a context variable          | a node              |
      | OpenTelemetry's span        | OpenTelemetry's span        | outside             |
      | OpenTelemetry's span        | OpenTelemetry's span        | a node              |

  Scenario Outline: Through stages, each message keeps the context of its sender: <mode>
    Given an open bridge on its own loop
    When 9 messages, each sent with a context variable of its own, go through two stages: <mode>
    Then each run of the second stage, and each result, had the context variable of its message

    Examples:
      | mode                                      |
      | as they end                               |
      | in order, the first being the last to end |
      | every third fails in the first            |

  Scenario Outline: Code that is notified of <what> has the context of the message's sender
    Given an open bridge on its own loop
    When a sender with a context variable sends a message, and is notified of <what>
    Then the notified code has that context variable

    Examples:
      | what                              |
      | a timeout                         |
      | the timeout of a blocked thread   |
      | the timeout of a stuck attempt    |
      | a failed result that came through |

  Scenario Outline: LangSmith shows a run below <sender> that sent it
    Given an open bridge on its own loop
    When <sender> sends to a traced graph
    Then the graph's trace is a child of <sender>, in one trace

    Examples:
      | sender                |
      | a traceable function  |
      | a node                |
