Feature: Runs that ignore cancellation, end together, or start each other leave nothing behind

  Scenario: A step that swallows its cancellation is not followed by another
    Given an agent that swallows its cancellation, and has 0.05 s
    When it is run, and does not end in time
    Then it is out of time after one step

  Scenario Outline: A step that ignores its cancellation holds neither its caller nor the agent
    Given an agent that thinks until the gate opens, and will not be cancelled
    And the time limit of tasks of a run that has ended is 0.05 seconds
    When <way> does not end, the next one is asked, the gate opens, and another one is asked
    Then the first caller got <error>, and the two others were answered
    And the agent was IDLE whenever none of them was in
    And the memory has the turns of these two alone, and the log names the step left behind

    Examples:
      | way                       | error           |
      | a run of 0.05 s           | RunTimeoutError |
      | a message of MCP's        | RunTimeoutError |
      | a message of a pipeline's | RunTimeoutError |
      | a run that is cancelled   | CancelledError  |

  Scenario: A second cancellation does not cut the cleanup of the first short
    Given an agent that fails, with a task that takes its time to clean up
    When its caller cancels it during that cleanup
    Then the cleanup has come to its end before the caller hears of it

  Scenario: A step that raises GeneratorExit is cleaned up after like one that fails
    Given an agent that raises GeneratorExit, with a task that takes its time to clean up
    When it is run to its end
    Then the cleanup has come to its end before GeneratorExit is raised

  Scenario: Tasks that replace each other when cancelled do not hold the caller
    Given an agent that fails, with a task that starts another one when it is cancelled
    And the time limit of tasks of a run that has ended is 0.05 seconds
    When it is run, and its caller waits
    Then its caller has the error of the run, and the log names one of these tasks

  Scenario: A loop that is closed in the iteration in which a run fails hides no task of later runs
    Given a run that failed in the last iteration of its loop, which was closed then
    When a run on another loop of the thread fails, with a task that takes its time to clean up
    Then the cleanup has come to its end before the caller hears of it

  Scenario: Runs that fail together look for their tasks together
    Given 500 agents that start a task and fail at the same time
    When they are run at once, and it is counted how often all tasks are looked at
    Then none of their tasks is left, and they were looked at less than 20 times

  Scenario: A run that starts the next one leaves no chain behind
    Given an agent whose every run starts the next, 300 times
    When it is run, and all of them have ended
    Then the last was part of no more than 2 runs
