Feature: A run belongs to nobody: context variables cross into it, the config of the node that sent it does not

  @tdd_expected_fail
  Scenario: What a node starts by plain "create_task" is its subgraph, with all that is its own
    Given a graph that asks and one that tells its config
    When a node of a graph with a checkpointer, tags and callbacks starts the other by plain "create_task"
    Then the other has neither the thread, the tags nor the callbacks of the node's graph

  Scenario Outline: What a node sends by <way> is a run of its own
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

  Scenario: A question of a graph that a node has sent to is a question, and no error
    Given an open bridge on its own loop
    And a graph that asks and one that tells its config
    When a node sends to the graph that asks
    Then the run ends with its question

  Scenario Outline: <What> of whoever sends crosses into the run, from <where>
    Given an open bridge on its own loop
    When somebody with <what> sends from <where>
    Then the run has <what>

    Examples:
      | What                        | what                        | where               |
      | A context variable          | a context variable          | outside             |
      | A context variable          | a context variable          | a node              |
      | OpenTelemetry's span        | OpenTelemetry's span        | outside             |
      | OpenTelemetry's span        | OpenTelemetry's span        | a node              |

  Scenario Outline: Through stages, each message keeps the context of who sent it: <mode>
    Given an open bridge on its own loop
    When 9 messages, each sent with a context variable of its own, go through two stages: <mode>
    Then each run of the second stage, and each result, had the context variable of its message

    Examples:
      | mode                                      |
      | as they end                               |
      | in order, the first being the last to end |
      | every third fails in the first            |

  Scenario Outline: Whoever hears of <what> has the context of who sent the message
    Given an open bridge on its own loop
    When somebody with a context variable sends a message, and hears of <what>
    Then who hears of it has that context variable

    Examples:
      | what                                  |
      | a time-out                            |
      | the time-out of a blocked thread      |
      | the time-out of a stuck attempt       |
      | a failed result that came through     |

  Scenario Outline: LangSmith sees a run below <sender> that sent it
    Given an open bridge on its own loop
    When <sender> sends to a traced graph
    Then the graph's trace is a child of <sender>, in one trace

    Examples:
      | sender                |
      | a traceable function  |
      | a node                |
