Feature: Whatever happens to a run of an agent, the agent can be used again

  Scenario Outline: Cancelled at any await, <agent> can be used again, and its memory is as before
    Given <agent>
    When its run is cancelled after each number of turns of the loop that it takes
    Then each time the agent is IDLE, nothing of the run goes on, and its memory is as before
    And each time the next run is answered

    Examples:
      | agent                                     |
      | a runnable agent with a chat model        |
      | a runnable agent with a graph of messages |
      | a runnable agent that uses a tool         |
      | a runnable agent that starts tasks        |

  Scenario Outline: After a run that <ended> the agent is <state>, and answers the next request
    Given a runnable agent that does as it is told, within 0.05 s
    When it is asked to <request>
    Then <error> is raised, which says "<words>"
    And the agent is <state>
    And the next run is answered, and leaves it <state>

    Examples:
      | ended     | request | error           | words                     | state |
      | failed    | fail    | LookupError     | on demand                 | ERROR |
      | timed out | hang    | RunTimeoutError | did not end within 0.05 s | IDLE  |

  Scenario: The next run leaves ERROR with reset=True
    Given a runnable agent that does as it is told
    When it is asked to fail
    And it is asked again, with reset
    Then the agent is IDLE

  Scenario: The deadline covers the wait for one's turn
    Given a runnable agent that answers when the gate opens
    When a caller enqueues behind a run, with a timeout of 0.05 s
    Then RunTimeoutError is raised
    When the agent's gate opens
    Then the run before it and a run after it are answered

  Scenario: A task that ignores its cancellation is named in the log, and blocks no other
    Given a runnable agent that has a deaf task, and 0.05 s
    And the time limit of tasks of a run that has ended is 0.05 seconds
    When it is asked to answer, and a deaf task is left
    Then RunTimeoutError is raised, which says "did not end within 0.05 s"
    And the log names the task

  Scenario Outline: A run that is cancelled after its loop has paused leaves no task behind: <host>
    Given a runnable agent that leaves a task to itself
    When its loop, run by <host>, pauses with a run in flight, which is cancelled when it runs again
    Then the task has ended before the run

    Examples:
      | host                   |
      | asyncio.Runner         |
      | a new thread each time |

  Scenario: A TimeoutError raised by the step arrives unchanged
    Given a runnable agent that raises TimeoutError
    When it is asked to answer
    Then the caller gets that very TimeoutError
    And the agent is ERROR

  Scenario: A stuck agent slows no other
    Given 50 runnable agents, the first of which hangs
    When all are run at once
    Then 49 are answered while the first hangs
    And the first ends when it is cancelled
