Feature: An agent runs one request at a time

  @tdd_expected_fail
  Scenario: With a flag that is checked before an await, two callers enter
    Given an agent whose run is guarded by a flag
    When 10 callers run it at once from tasks
    Then exactly one entered at a time

  Scenario Outline: Of ten callers at once from <where>, one enters, and the others are refused at once
    Given a runnable agent that answers when the gate opens
    When 10 callers run it at once from <where>
    And all but one of 10 have been refused
    And the agent's gate opens
    Then one has the answer, and each error names the agent, its state and the remedy

    Examples:
      | where   |
      | tasks   |
      | loops   |
      | threads |

  Scenario Outline: Callers from <where> that enqueue are answered one after another
    Given a runnable agent that answers when the gate opens
    When 10 callers enqueue at once from <where>
    And the agent's gate opens
    Then all 10 have the answer
    And exactly one entered at a time

    Examples:
      | where   |
      | tasks   |
      | loops   |
      | threads |

  Scenario: Callers that enqueue are answered in the order of their calls
    Given a runnable agent that answers with the request
    When 20 callers enqueue one after another behind a run
    Then they are answered in that order

  Scenario: A caller that is cancelled while it waits for its turn blocks no other
    Given a runnable agent that answers with the request
    When of three that enqueue behind a run the first is cancelled as its turn comes
    Then the two others are answered, and it never entered

  Scenario: A caller whose loop is closed while it waits blocks no other
    Given a runnable agent that answers when the gate opens
    When a loop is closed over a caller that has enqueued
    And the agent's gate opens
    Then the run before it and a run after it are answered

  Scenario Outline: A call of an agent by its own run, <how>, is refused at once instead of waiting for itself
    Given a runnable agent that asks itself <how>
    When it is asked to answer
    Then AgentBusyError is raised, which says "by its own run"
    And its memory is empty

    Examples:
      | how               |
      | directly          |
      | in a task         |
      | by another agent  |

  Scenario: A task started by a run may call its agent once the run is over
    Given a runnable agent that answers with the request
    When a task that its run has started asks it after the end of that run
    Then that task has its answer

  Scenario: run_sync answers in a thread, and is refused in the thread of a loop
    Given a runnable agent that answers with the request
    When 8 threads call run_sync with on_busy="enqueue"
    Then each has its own answer
    And in a running loop run_sync raises BlockingCallError
