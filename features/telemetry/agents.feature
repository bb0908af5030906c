Feature: The runs of agents are in traces, and hooks are told of each once

  Background:
    Given an open bridge on its own loop
    And traces of the bridge

  Scenario: The run of an agent has a span by the conventions, with the spans of its steps below it
    When an agent with these traces is run twice in a span, and its step makes a span
    Then these are the spans
      """
      request
        invoke_agent scout
          inside step
        invoke_agent scout
          inside step
      """
    And the spans of the agent have its name and its conversation, and say nothing of what was said

  Scenario: An agent on a bridge, which asks another one, is below the run of its message
    When an agent that asks another agent is run on the bridge, on thread "t"
    Then these are the spans
      """
      message chief
        invoke_workflow chief
          invoke_agent chief
            invoke_agent scout
              inside step
      """
    And the conversation of "invoke_agent chief" is "t", and that of "invoke_agent scout" is "scout"

  Scenario: Each agent of a pool has the conversation of its thread
    When a pool whose factory adds these traces answers on 20 threads at once
    Then each of 20 runs of agents is below the run of the message of its thread

  Scenario Outline: A run of an agent that <what> ends with the status <status>
    When this happens to an agent with these traces: it <what>
    Then the span of the agent has the status <status> and the error type "<error>"
    And no span is open

    Examples:
      | what                          | status      | error                              |
      | answers                       | ok          |                                    |
      | fails                         | error       | ValueError                         |
      | asks                          | interrupted |                                    |
      | exceeds its time              | timed_out   | rxlanggraph.errors.RunTimeoutError |
      | is cancelled                  | cancelled   |                                    |
      | exceeds its time on a bridge  | timed_out   | rxlanggraph.errors.RunTimeoutError |
      | is streamed, and that closed  | cancelled   |                                    |

  Scenario: A run that waits for its turn and gets none has no span
    When an agent with these traces is busy, and two callers are refused or time out
    Then it has one span

  Scenario: A run whose loop is closed in the middle of it is ended by the next one at the latest
    When the loop of a run of an agent with these traces is closed, and it is run on another
    Then the statuses of its spans are "cancelled, ok"
    And no span is open

  Scenario: Traces that are added twice make the span of each run once, and none once disposed of
    When these traces are added to an agent twice, and it is run, also when disposed of
    Then it has one span

  Scenario: Traces that are closed end the spans of runs of agents too
    When these traces are closed in the middle of the run of an agent
    Then no span is open

  Scenario: A hook that raises changes nothing, and is logged once
    When an agent whose hooks raise is run 3 times
    Then each run has its answer, and each hook is in the log once

  Scenario: What a hook sets in the context of a run is seen by its steps, and not by its caller
    When an agent whose hook sets a context variable is run
    Then its step has seen the variable, and its caller has not

  Scenario: Of a thousand runs of fifty agents on eight threads each is told of once, in order
    When 8 threads run 50 agents with hooks 1000 times, a third of which fail or are cancelled
    Then each run was told to have begun, then to have ended, once

  Scenario: What is not a hook is refused by an agent as by a bridge
    When a string is added to an agent as hooks
    Then InvalidTypeError is raised, which says "must be an instance of a subclass of"
