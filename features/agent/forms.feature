Feature: An agent takes requests, and gives answers, in the forms of LangChain and LangGraph

  Scenario Outline: <request> is taken for messages of the user
    Given an agent that repeats what it was told last
    When it is given <request>
    Then it answers "hello"
    And it remembers <count> messages of the user

    Examples:
      | request                           | count |
      | a list of two messages            | 2     |
      | a mapping of messages             | 1     |
      | a mapping with one message        | 1     |
      | a pair of role and content        | 1     |
      | a mapping of pairs, read as JSON  | 2     |
      | a LangChain message               | 1     |
      | a mapping of role and content     | 1     |

  Scenario: A chain that ends in a mapping without a role answers with it
    Given an agent made with a chain that ends in {"city": "Bern"}
    When it is given a LangChain message
    Then it answers {"city": "Bern"}

  Scenario: A graph with an output of its own answers with that
    Given an agent made with a graph whose output is {"city": "Bern"}
    When it is given a LangChain message
    Then it answers {"city": "Bern"}

  Scenario Outline: <what> is refused, with the remedy
    Given an agent made with <what>
    When it is given a LangChain message
    Then <error> is raised, which says "<remedy>"

    Examples:
      | what                           | error                 | remedy              |
      | a model that asks for tools    | AgentError            | create_agent        |
      | a graph that interrupts itself | AgentInterruptedError | Command(resume=...) |
      | a graph as its llm             | InvalidTypeError      | graph=              |

  Scenario Outline: Callbacks that are given with a request reach <what>
    Given an agent made with <what>
    When it is invoked with a callback
    Then the callback was called

    Examples:
      | what                  |
      | a Runnable that hears |
      | a graph that hears    |

  # -- a graph that remembers, too ---------------------------------------------------------------

  Scenario: Messages that a checkpointer has already enter a bounded memory once, and in order
    Given an agent made with a graph with a checkpointer, which remembers 4 messages
    When it is asked "u1", "u2", "u3" and "u4", one after another
    Then its memory is "u3, 3u, u4, 4u"
    And the graph remembers "u1, 1u, u2, 2u, u3, 3u, u4, 4u"

  Scenario: A checkpointer that only appends messages is sent each of them once
    Given an agent made with a graph that adds to what its checkpointer has
    When it is asked "u1", "u2" and "u3", one after another
    Then its memory is "u1, 1u, u2, 2u, u3, 3u"
    And the graph remembers "u1, 1u, u2, 2u, u3, 3u"

  Scenario: Messages that a failed run left with the checkpointer do not enter the memory
    Given an agent made with a graph with a checkpointer that fails on "fail"
    When it is asked "u1", "fail" and "u2", one after another
    Then its memory is "u1, 1u, u2, 2u"

  Scenario: Agents of one name with one graph have conversations of their own, by their thread_id
    Given an agent made with a graph with a checkpointer
    When it is invoked on the threads "ada", "ben" and "ada"
    Then the graph remembers 4 messages of "ada" and 2 of "ben"
