Feature: When a loop ends, its runs end with it: started ones are cancelled, waiting ones never begin

  Scenario: Running runs are cancelled, and are registered until they have cleaned up; waiting ones never begin
    Given an open bridge on an adopted loop with max_concurrency=1
    When the adopted loop ends over a run that cleans up and one that waits for its slot
    Then the first one was in the registry while it cleaned up, and is cancelled
    And the second one never began, and raises LoopUnavailableError

  Scenario: asyncio.run returns once the threads of the cancelled runs have ended
    When asyncio.run ends over a sync function that still needs the loop to return
    Then that function got what it needed, and the registry is empty

  Scenario: A stream of which nothing has begun ends with an error too
    Given an open bridge on an adopted loop with max_concurrency=1
    When the adopted loop ends over a stream with errors="skip" that waits behind another run
    Then the stream has 0 results, ends with LoopUnavailableError, and does not complete

  Scenario: A stream of which everything has begun ends with an error too
    Given an open bridge on an adopted loop
    When the adopted loop ends over a stream with errors="skip" whose only run has begun
    Then the stream has 0 results, ends with RunCancelledError, and does not complete

  Scenario: A task that a node has left on the bridge's own loop is cancelled when the bridge is closed
    Given an open bridge on its own loop
    When a node leaves a task behind, and the bridge is closed
    Then that task was cancelled

  @tolerates:left_behind
  Scenario Outline: The end of the bridge's own loop ends although other code closes that loop: <when>
    Given an open bridge on its own loop with max_concurrency=1
    When a node stops the loop, and other code closes it <when>
    Then both runs have failed, the second with LoopUnavailableError, and the loop's thread has ended

    Examples:
      | when                          |
      | in a callback of the next run |
      | while its tasks are cancelled |

  Scenario Outline: Where <no thread> can be started the message is refused, and the next one answered: <home> loop
    Given an open bridge on <home> loop
    When the first message comes while no thread can be started
    Then LoopUnavailableError is raised, which says "<no thread>"
    And nothing was ever submitted to the bridge
    And the bridge answers the next message

    Examples:
      | home       | no thread                        |
      | its own    | no thread for the loop           |
      | an adopted | no thread to watch over the loop |

  Scenario: asyncio logs nothing about runs that had begun on a loop that was closed
    When an adopted loop is closed between the bridge's call and the step in which it looks
    Then the message's future raises LoopUnavailableError, and asyncio has logged nothing

  Scenario: asyncio logs nothing about a run that waits in its node on a loop that was closed
    When an adopted loop is closed while a node waits there
    Then the message's future raises LoopUnavailableError, and asyncio has logged nothing
