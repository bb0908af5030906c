Feature: A run may have the id of its message in LangSmith

  As its documents say: config=lambda message: {"run_id": UUID(message.id)}.

  Background:
    Given an open bridge on its own loop

  Scenario Outline: The run of <target> has the id of its message
    When a message is sent to <target>, with its id as the run_id of its config
    Then LangChain's callbacks were told of 1 run without a parent, with the id of the message
    And all others have ids of their own

    Examples:
      | target                                   |
      | a graph                                  |
      | a graph on a thread with a saver         |
      | a graph with a subgraph                  |
      | a function that calls a graph            |
      | an agent over a graph                    |
      | a graph as a stream                      |

  Scenario Outline: Of <target> that is retried, the first attempt alone has it
    When a message is sent to <target> that fails twice, with its id as the run_id of its config
    Then LangChain's callbacks were told of 3 runs without a parent, the first with the id of the message
    And all others have ids of their own

    Examples:
      | target                                   |
      | a graph                                  |
      | a graph on a thread with a saver         |
      | a function that calls a graph            |
      | an agent over a graph                    |
      | a graph as a stream                      |

  Scenario: An agent that asks its graph twice in a run gives the id to the first call
    When a message is sent to an agent of two steps, with its id as the run_id of its config
    Then LangChain's callbacks were told of 2 runs without a parent, the first with the id of the message
    And all others have ids of their own

  Scenario: The next message on a thread is not taken for the same run
    When 3 messages are sent on a thread with a saver, each with its id as the run_id of its config
    Then each has changed the state of the thread, and had an id of its own
