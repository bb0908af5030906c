Feature: An agent answers with a model, a function or a graph, and remembers whole turns

  # -- a turn ------------------------------------------------------------------------------------

  Scenario: Other code sees the messages of a run at its end, all at once
    Given an agent whose step adds to the memory and waits for the gate
    When it is run, and another task adds a message meanwhile
    Then the run sees its own messages, and others do not
    When the agent's gate opens
    Then the memory has the other's message first, and the run's turn in one piece behind it

  Scenario: A leftover task of a run cannot write into a turn that is over
    Given an agent whose step leaves a task behind that writes later
    When it is run, and the task writes
    Then the task gets an AgentError, and the memory has the run's turn alone

  # -- who answers -------------------------------------------------------------------------------

  Scenario: An agent without a model or graph takes a request and answers None
    Given a runnable agent that was given nothing
    When it is asked "hello"
    Then the answer is None, it is IDLE, and its memory is
      | role | content |
      | user | hello   |

  Scenario Outline: <Who> answers, and the memory has the turn
    Given a runnable agent with <who>
    When it is asked "hello"
    Then the answer is "olleh", it is IDLE, and its memory is
      | role      | content |
      | user      | hello   |
      | assistant | olleh   |
    And its output was "olleh", and ended

    Examples:
      | Who                            | who                            |
      | A chat model                   | a chat model                   |
      | A Runnable                     | a Runnable                     |
      | A chain that ends in text      | a chain that ends in text      |
      | A chain that ends in a mapping | a chain that ends in a mapping |
      | An async function              | an async function              |
      | A graph of messages            | a graph of messages            |
      | A graph with a checkpointer    | a graph with a checkpointer    |

  Scenario: A chain that ends in a number answers with it, and the memory has only the request
    Given a runnable agent with a chain that ends in a number
    When it is asked "hello"
    Then the answer is 5, it is IDLE, and its memory is
      | role | content |
      | user | hello   |

  Scenario: An observer of a run sees each of its states, and its output
    Given a runnable agent with a chat model
    When it is run with "hello" with an observer
    Then the states were seen to be RUNNING, THINKING, RUNNING, IDLE, as in its history
    And the output was seen to be "olleh"

  Scenario: A graph without messages takes the request as it is
    Given a runnable agent with a graph of a counter
    When it is run with the state of the counter at 41
    Then the answer is the state of the counter at 42, and its memory is empty

  Scenario: The second request is sent to the model with the first turn
    Given a runnable agent with a chat model that says how many messages it was given
    When it is run twice, with "one" and "two"
    Then the answers are "1" and "3"

  Scenario: Only the new reply is added, though the graph's checkpointer remembers more than the agent
    Given a runnable agent with a graph with a checkpointer
    When it is run with "before", forgets, and is run with "hello"
    Then the answer is "olleh", it is IDLE, and its memory is
      | role      | content |
      | user      | hello   |
      | assistant | olleh   |

  Scenario: A step that returns None is called again, but not more often than max_steps
    Given a runnable agent that returns None from 4 steps
    When it is asked to answer
    Then the step was called 4 times, the answer is None, and a warning was logged

  Scenario Outline: <what> is refused, and the error names it
    When an agent is made with <what>
    Then <error> is raised, which says "<text>"

    Examples:
      | what                     | error                | text                   |
      | an empty name            | InvalidArgumentError | name must be           |
      | a sync function as llm   | InvalidTypeError     | not an async function  |
      | a list as memory         | InvalidTypeError     | must be a Memory       |
      | a step that is not async | InvalidTypeError     | 'async def'            |
      | a number as llm          | InvalidTypeError     | chat model, a Runnable |
      | a graph not compiled     | InvalidTypeError     | graph.compile()        |
      | an llm and a graph       | InvalidTypeError     | not both               |
      | no steps                 | InvalidArgumentError | max_steps              |
      | a timeout of zero        | InvalidArgumentError | above 0                |
      | an unknown busy policy   | InvalidArgumentError | 'enqueue'              |


  # -- what is not text ---------------------------------------------------------------------------

  Scenario Outline: A chain that ends in <a value> answers with it, and the memory has only the request
    Given a runnable agent whose chain ends in <a value>
    When it is asked "hello"
    Then the answer is that very <a value>, and its memory is
      | role | content |
      | user | hello   |

    Examples:
      | a value                       |
      | a pair of strings             |
      | a tuple of three              |
      | a mapping with messages       |
      | a mapping with a role         |
      | a mapping with no known role  |
      | None                          |

  Scenario Outline: The answer of <an agent> is the structured response of its own run
    Given an agent over LangChain's own that answers by <an agent>
    When it is asked twice for the weather
    Then each answer is the structured response of its own run, and the memory has the messages

    Examples:
      | an agent                  |
      | a tool strategy           |
      | a tool strategy, and remembers |

  Scenario: The structured response of an earlier run is not the answer of a later one
    Given an agent over a graph that remembers, and gives a structured response when asked "weather?"
    When it is asked "weather?", "weather?" and "thanks"
    Then its answers are the structured response, twice, and "re: thanks"

  Scenario Outline: An answer that no model would accept later is an error of that run alone: from <who>
    Given an agent with <who> that answers the first request with half of a surrogate pair
    When it is asked twice for an answer
    Then the first run raises an AgentError that says "cannot be encoded", and is not remembered
    And the second one is answered

    Examples:
      | who                       |
      | a function                |
      | a graph                   |
      | a graph with blocks of text |

  Scenario Outline: Calls of tools that <cannot be made> are an error of <who>
    Given an agent with <who> that calls tools that <cannot be made>
    When it is asked for that
    Then it raises an AgentError that says "<words>", and remembers nothing

    Examples:
      | cannot be made   | who                               | words                   |
      | cannot be read   | a chat model                      | cannot be read (look    |
      | cannot be read   | a graph                           | cannot be read (look    |
      | nothing executes | a chat model                      | the agent does not call |
      | nothing executes | a graph                           | the agent does not call |
      | cannot be read   | a function that returns a Message | cannot be read (look    |
      | cannot be read   | a function that returns a mapping | cannot be read (look    |
      | nothing executes | a function that returns a Message | the agent does not call |
      | nothing executes | a function that returns a mapping | the agent does not call |
