Feature: Runs that will not end, that end together, and that never cease leave nothing behind

  Scenario: A step that swallows its cancellation is not followed by another
    Given an agent that swallows its cancellation, and has 0.05 s
    When it is run, and does not end in time
    Then it is out of time after one step

  Scenario: A message over MCP has its deadline also where a step will not end
    Given an agent that will not be cancelled until the gate opens
    And tasks of a run that has ended are waited for during 0.05 s
    When a message over MCP gives it 0.05 s
    Then its sender gets a time-out, and the agent is busy until the gate opens

  Scenario: A second cancellation does not cut the clean-up of the first short
    Given an agent that fails, with a task that takes its time to clean up
    When its caller cancels it during that clean-up
    Then the clean-up has come to its end before the caller hears of it

  Scenario: Runs that fail together look for their tasks together
    Given 500 agents that start a task and fail at the same time
    When they are run at once, and it is counted how often all tasks are looked at
    Then none of their tasks is left, and they were looked at less than 20 times

  Scenario: A run that starts the next one leaves no chain behind
    Given an agent whose every run starts the next, 300 times
    When it is run, and all of them have ended
    Then the last was part of no more than 2 runs
