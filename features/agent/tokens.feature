Feature: The tokens of a chat model are part of an agent's output, where they are asked for

  Scenario Outline: A stream with stream_mode="messages" gives the tokens of <what>, and then the answer
    Given an agent that has <what>, whose answer is "it is so"
    When it streams its answer to a question, with stream_mode="messages"
    Then it gives the words one by one, numbered, in the mode messages, and then the answer
    And the agent remembers the question and the answer, once

    Examples:
      | what                                    |
      | a chat model                            |
      | a graph with a chat model               |
      | a graph with a chat model and a memory  |
      | a chain with a chat model               |

  Scenario: A stream without a mode gives the answer alone
    Given an agent that has a chat model, whose answer is "it is so"
    When it streams its answer to a question
    Then it gives the answer alone

  Scenario: Several modes at once, as LangGraph has them
    Given an agent that has a graph with a chat model, whose answer is "it is so"
    When it streams its answer to a question, with stream_mode=["updates", "messages"]
    Then it gives chunks of both modes, numbered, and then the answer

  Scenario Outline: An agent that is made with stream_mode="messages" puts the tokens out, by <way>
    Given an agent that streams by itself, whose answer is "it is so"
    When it answers a question by <way>
    Then its output, its broadcast and its observers have the words and the answer

    Examples:
      | way           |
      | run           |
      | ainvoke       |
      | bridge.invoke |

  Scenario: A stream of one run has its tokens alone; a second run has others, numbered from 0
    Given an agent that has a chat model, whose answers are "it is so" and "so it is"
    When it streams its answers to two questions at once, with stream_mode="messages"
    Then each stream has the words of its own answer, numbered from 0

  Scenario Outline: A reader that pauses holds up the run of <what>
    Given an agent that has <what>, whose answer has 500 tokens
    When 3 tokens are taken from its stream, and then no more
    Then the model has made no more than 40 tokens
    And the rest comes when the reader goes on, in order

    Examples:
      | what                      |
      | a chat model              |
      | a graph with a chat model |

  Scenario Outline: A stream that is left half-way ends the model of <what>, and the agent forgets
    Given an agent that has <what>, whose answer has 500 tokens
    When 3 tokens are taken from its stream, which is then closed
    Then the model's stream is closed, and the agent remembers nothing

    Examples:
      | what                      |
      | a chat model              |
      | a graph with a chat model |

  Scenario: A model that fails after some tokens: they have come, and then its error
    Given an agent whose chat model fails after 3 tokens
    When it streams its answer to a question, with stream_mode="messages"
    Then it gives 3 tokens and raises the model's error, and the agent remembers nothing

  Scenario Outline: A mode that has no chunks is refused: <call>
    When "<call>" makes an agent, or its stream
    Then <error> is raised, which says "<words>"

    Examples:
      | call                                                       | error                | words                                     |
      | BaseAgent("a", llm=model, stream_mode="updates")           | InvalidArgumentError | stream_mode must be 'messages'            |
      | BaseAgent("a", llm=model, stream_mode="tokens")            | InvalidArgumentError | must be one or more of                    |
      | BaseAgent("a", llm=model, stream_mode=[])                  | InvalidTypeError     | must be a mode or a list of modes         |
      | BaseAgent("a", llm=function, stream_mode="messages")       | InvalidArgumentError | an async function has no chunks           |
      | BaseAgent("a", graph=model, stream_mode="messages")        | InvalidArgumentError | can only be passed with a compiled        |
      | BaseAgent("a", stream_mode="messages")                     | InvalidArgumentError | has no llm or graph whose chunks          |
      | BaseAgent("a", llm=model).stream("?", stream_mode="modes") | InvalidArgumentError | must be one or more of                    |
      | BaseAgent("a", llm=model).stream(stream_mode="messages")   | InvalidArgumentError | are for a stream with a request           |
