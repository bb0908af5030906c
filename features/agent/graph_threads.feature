Feature: The thread of an agent's graph holds the conversation, whatever becomes of its runs

  # -- runs that do not end well -----------------------------------------------------------------

  @tdd_expected_fail
  Scenario Outline: Without an agent a run of <graph> that did not end corrupts its thread
    Given a thread of <graph> on which a tool has raised
    When the graph is asked once more
    Then the graph answers

    Examples:
      | graph              |
      | create_react_agent |
      | create_agent       |

  Scenario Outline: After a run in which <ending>, <who> answers, and its thread is as before
    Given <who> over each kind of graph with tools, with each kind of saver
    When it has used its tool, and then <ending>
    Then its thread and its memory hold what they held before
    And the next request is answered, and the model sees no trace of the run before

    Examples:
      | ending                                | who                                     |
      | its tool hangs until its time is over | an agent                                |
      | its tool raises                       | an agent                                |
      | it is cancelled in its tool           | an agent                                |
      | its tool hangs until its time is over | a pool                                  |
      | its tool raises                       | a pool                                  |
      | it is cancelled in its tool           | a pool                                  |
      | its tool raises                       | a pool that keeps in the checkpointer   |

  Scenario Outline: After a first run in which <ending>, the thread of an agent is empty
    Given an agent over each kind of graph with tools, with each kind of saver
    When <ending>
    Then its thread and its memory hold nothing
    And the next request is answered, and the model sees no trace of the run before

    Examples:
      | ending                                |
      | its tool hangs until its time is over |
      | its tool raises                       |
      | it is cancelled in its tool           |

  Scenario: Cancelled at any await, an agent over a graph leaves its thread as before
    Given an agent over each kind of graph with tools, with each kind of saver
    When its run is cancelled before each callback of the loop, and its thread looked at
    Then its thread and its memory hold what they held before each time

  Scenario Outline: A run on a thread that <the config> names is rolled back on that thread
    Given an agent over a graph whose second node fails on demand, with a checkpointer
    When it answers on the thread "T", named by <the config>, and then fails there
    Then "T" has the first turn alone, and no other thread has anything

    Examples:
      | the config               |
      | configurable             |
      | the config itself        |
      | both                     |

  Scenario Outline: A config <what> is refused, and the agent is not in ERROR
    Given an agent over a graph whose second node fails on demand, with a checkpointer
    When it is invoked with a config <what>
    Then it raises <error>, and is IDLE

    Examples:
      | what                            | error                |
      | that is not a mapping           | InvalidTypeError     |
      | whose thread is a number        | InvalidTypeError     |
      | that names two threads          | InvalidArgumentError |

  Scenario: A run that fails once its graph has answered leaves the thread as before
    Given an agent over each kind of graph with tools, with each kind of saver
    When it is cancelled while its answer waits for room in its output
    Then its thread and its memory hold what they held before
    And the next request is answered, and the model sees no trace of the run before

  Scenario: A thread that a killed process left in the middle of a run is taken up where it was before
    Given an agent over each kind of graph with tools, with each kind of saver
    When it has used its tool, and another process dies while it runs the graph on its thread
    Then the next request is answered, and the model sees no trace of the run before

  Scenario: A graph that stops before its tools is an error, and its thread is as before
    Given an agent over a graph that stops before its tools
    When it is asked to use its tool
    Then it raises an AgentError that says that the graph has stopped, and its thread is empty

  Scenario: What could not be rolled back in time is rolled back by the next run
    Given an agent over a graph with tools, whose checkpointer hangs once its tool has begun
    And the time limit of undoing a run is 0.05 seconds
    When the log is read while its tool raises
    Then the log says that it could not be undone
    And once the checkpointer goes on, the next request is answered without a trace of the run

  Scenario: A step that the checkpointer could not save does not count as the graph's end
    Given an agent over a graph with tools, whose checkpointer saves nothing once its tool has begun
    When the log is read while its tool ends, and what it did cannot be saved
    Then the log says that it could not be undone
    And once the checkpointer goes on, the next request is answered without a trace of the run

  Scenario: A request during which the process was killed can be sent again unchanged
    Given an agent over a graph with tools, and a message on its thread at which a process was killed
    When it is asked with that very message
    Then it is answered, and the message is there once

  Scenario: An agent called by a node of another graph uses its own thread and checkpointer
    Given a graph with a checkpointer, whose node asks an agent over a graph with another one
    When it is asked twice
    Then both answers are right, and the agent's thread is in its own checkpointer alone

  Scenario Outline: A subgraph's state on the thread is rolled back with it: <subgraph>
    Given an agent over a graph with <subgraph> that remembers on the same thread, for each saver
    When its subgraph has used its tool, which then raises twice
    Then the next request is answered, and the subgraph's model sees what it saw before

    Examples:
      | subgraph                       |
      | a subgraph                     |
      | a subgraph that its node calls |

  Scenario: A subgraph that is first called in a failed run remembers nothing
    Given an agent over a graph with a subgraph that remembers on the same thread, for each saver
    When in its first run its tool raises
    Then the next request is answered, and the subgraph's model sees that request alone
