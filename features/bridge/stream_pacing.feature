Feature: A slow consumer holds up what is active within a step of its run

  # -- tokens, and steps of subgraphs

  Scenario Outline: <what> wait for a consumer that pauses
    Given an open bridge on its own loop
    When 5 chunks are taken of <what>, and then none while the loop has 2,000 turns
    Then there were no more than <most>
    And the rest comes when the consumer goes on, each once and in order

    Examples:
      | what                                      | most |
      | the tokens of a model                     | 60   |
      | the tokens of a model that gives the loop no turn | 60 |
      | the tokens of a model in a worker thread  | 60   |
      | the tokens of 4 models at once            | 140  |
      | the steps of a subgraph                   | 60   |
      | the steps of a subgraph in a worker thread | 60 |
      | the calls of a tool                       | 60   |
      | the calls of a tool in a worker thread    | 60   |
      | the tokens of a model, as custom chunks   | 60   |

  Scenario: A run waits for the loop that awaits its stream
    Given an open bridge on its own loop
    When a coroutine awaits the stream of a run of 500 chunks, and its loop stands still after the first
    Then it has made no more than 20 chunks by then, and all of its chunks have come

  Scenario: A Runnable that is not a graph waits for a consumer that pauses
    Given an open bridge on its own loop
    When 5 chunks are taken of the chunks of a Runnable, and then none while the loop has 2,000 turns
    Then there were no more than 60

  Scenario Outline: Of bare "astream", <what> continue, and are buffered
    When 5 chunks of bare "astream" are taken of <what>, and then none
    Then 300 more are made all the same

    Examples:
      | what                    |
      | the tokens of a model   |
      | the steps of a subgraph |

  Scenario: What a node writes without calling anything of LangChain's is buffered by LangGraph
    Given an open bridge on its own loop
    When 5 chunks are taken of the numbers that a node writes, and then none while the loop has 2,000 turns
    Then all 500 were made

  Scenario: A model that is called on the loop's own thread is not held up, since the loop would be
    Given an open bridge on its own loop
    When 5 chunks are taken of the tokens of a sync model on the loop, and then none while the loop has 2,000 turns
    Then all 500 were made
    And the rest comes when the consumer goes on, each once and in order

  # -- the end of a run that is held up

  Scenario Outline: <what> that are held up end with <end>
    Given an open bridge on its own loop
    When 5 chunks are taken of <what>, and then <end>
    Then the registry becomes idle, and what was at work has ended

    Examples:
      | what                                     | end                     |
      | the tokens of a model                    | the stream is closed    |
      | the tokens of a model                    | the run is cancelled    |
      | the tokens of a model                    | the bridge cleans up    |
      | the tokens of a model                    | the bridge is closed    |
      | the tokens of a model                    | the timeout expires     |
      | the tokens of a model in a worker thread | the stream is closed    |
      | the tokens of a model in a worker thread | the bridge cleans up    |
      | the tokens of a model in a worker thread | the bridge is closed    |
      | the steps of a subgraph                  | the stream is closed    |
      | the steps of a subgraph                  | the bridge is closed    |

  Scenario: A thread that is held up continues when the loop has stopped
    Given an adopted loop, on which a sync model is held up by a consumer that pauses
    When the loop stops
    Then the model's thread comes to its end

  Scenario: Callbacks of the caller are called too, and those of a manager
    Given an open bridge on its own loop
    When tokens are streamed with callbacks in the config, as a list and as a manager
    Then each of them was told of every token
