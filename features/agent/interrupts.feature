Feature: An agent whose graph asks waits for an answer, and nothing of the run is in its memory before

  Scenario Outline: <who> whose tool asks ends its run with the question, and is given the answer
    Given <who> over each kind of graph with tools, with each kind of saver
    When it has used its tool, and then its tool asks
    Then the run ended with an AgentInterruptedError that has the question, and no agent is in ERROR
    And its memory holds what it held before, and its graph waits
    And the answer "yes" continues the run, and the whole turn is in the memory and on the thread

    Examples:
      | who                                   |
      | an agent                              |
      | a pool                                |
      | a pool that keeps in the checkpointer |

  Scenario Outline: Another request drops the question, and <who> answers as if it had not been asked
    Given <who> over each kind of graph with tools, with each kind of saver
    When it has used its tool, and then its tool asks
    Then the next request is answered, and the model sees no trace of the run before

    Examples:
      | who      |
      | an agent |
      | a pool   |

  Scenario: The first run of an agent may ask, and be answered by an agent of the next process
    Given an agent over each kind of graph with tools, with each kind of saver
    When the tool asks, and another agent over the same graph is given the answer
    Then the other agent has answered, and remembers the whole turn

  Scenario Outline: An answer to an agent is refused <when>, and the agent is not in ERROR
    Given an agent over each kind of graph with tools, with each kind of saver
    When it has used its tool, and then its tool asks
    Then an answer is refused <when>, with a StaleResumeError

    Examples:
      | when                                        |
      | after another one                           |
      | after another request                       |
      | after the memory was cleared                |
      | while a run is active, if it names no question |

  Scenario: Of two answers at once an agent takes one
    Given an agent over each kind of graph with tools, with each kind of saver
    When it has used its tool, and then its tool asks
    Then of two answers at once one is taken, and the other refused with a StaleResumeError

  Scenario: A run that fails after the answer leaves the thread as it was before the request
    Given an agent over each kind of graph with tools, with each kind of saver
    When it has used its tool, and then its tool asks, and fails once it is answered
    Then its thread and its memory hold what they held before
    And the next request is answered, and the model sees no trace of the run before

  Scenario: Cancelled at any await, a run leaves its thread as before until it has told its question
    Given an agent over each kind of graph with tools, with each kind of saver
    When its run is cancelled before each callback of the loop, until its question is told
    Then its thread and its memory hold what they held before each time

  Scenario Outline: Through a bridge <who> that asks is interrupted, and a reply answers it
    Given an open bridge on its own loop
    And <who> over a graph with a tool that asks
    When it is asked through the bridge, and answered twice by a reply
    Then the first result is interrupted, with the question, and the replies are ok and rejected

    Examples:
      | who      |
      | an agent |
      | a pool   |

  Scenario: Through a bridge, of two answers without an id one is taken
    Given an open bridge on its own loop
    And a pool over a graph with a tool that asks
    When it is asked through the bridge, and answered twice at once without an id
    Then the first result is interrupted, with the question, and the replies are ok and rejected

  Scenario: A graph without messages asks its agent's caller, too
    Given an agent over a graph without messages that asks
    When it is asked, and answered with Command(resume="yes")
    Then the answer of the run is the state of the graph
