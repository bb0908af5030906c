Feature: A callback that blocks the loop is named, and what that costs is measured

  Scenario Outline: <What> that blocks <home> loop is named once, with its stack
    Given an open bridge on <home> loop with blocked_after=0.05
    And hooks that write down what blocks the loop
    When <what> blocks the loop until that is noticed, 3 times
    Then 1 warning names the function "blocker", with its stack and a remedy
    And the hooks were told the same, in a thread of the watch
    And the lag of the loop was more than 0.05 s meanwhile

    Examples:
      | What                      | what                      | home       |
      | A subscriber              | a subscriber              | its own    |
      | A subscriber              | a subscriber              | an adopted |
      | A node                    | a node                    | its own    |
      | An async function         | an async function         | an adopted |
      | A done-callback           | a done-callback           | its own    |
      | A hook                    | a hook                    | its own    |

  Scenario: What blocks an adopted loop is named when it is the first that the bridge does there
    Given an open bridge on an adopted loop with blocked_after=0.05
    When a message is sent on the loop itself, and its function blocks the loop at once
    Then 1 warning names the function "blocker", with its stack and a remedy

  Scenario: On Python 3.13 without the GIL, the task that blocks the loop is named
    Given a Python whose threads cannot look into each other
    And an open bridge on its own loop with blocked_after=0.05
    And hooks that write down what blocks the loop
    When an async function blocks the loop until that is noticed, 2 times
    Then 1 warning names the task "blocker", and says that its stack cannot be shown
    And the hooks were told the same, in a thread of the watch

  Scenario: Of several that block the loop each is named
    Given an open bridge on its own loop with blocked_after=0.05
    When two subscribers block the loop until that is noticed, one after the other
    Then 2 warnings name them

  Scenario: Hooks for what blocks the loop are enough to have it watched
    Given an open bridge on its own loop
    And hooks that write down what blocks the loop
    When a subscriber blocks the loop until that is noticed, 1 time
    Then 1 warning names the function "blocker", with its stack and a remedy

  Scenario: Hooks that are added to a loop at work have it watched from then on
    Given an open bridge on its own loop
    When an async function blocks the loop, which is watched since it has begun
    Then 1 warning names the function "blocker", with its stack and a remedy
    And the hooks were told the same, in a thread of the watch

  Scenario: A hook may cancel the run that blocks the loop, and close the bridge
    Given an open bridge on its own loop with blocked_after=0.05
    When a hook cancels everything as a node blocks the loop, and closes the bridge
    Then the node went on to its end, and the bridge is closed

  Scenario: A loop that runs is not said to be blocked
    Given an open bridge on its own loop with blocked_after=60
    When 100 messages are answered while the loop is watched
    Then the lag of the loop is known, and nothing was named

  Scenario: While there is no work the watch sleeps without a timeout
    Given an open bridge on its own loop with blocked_after=0.01
    When 3 messages are answered while the loop is watched
    Then the thread of the watch waits without a timeout
    When 3 messages are answered while the loop is watched
    Then the thread of the watch waits without a timeout

  Scenario: A loop that is not watched has no thread for it, and no lag
    Given an open bridge on its own loop
    When 3 messages are answered while the loop is not watched
    Then there is no thread of a watch, and the lag of the loop is None

  Scenario Outline: After <end> the thread of the watch has ended
    Given an open bridge on <home> loop with blocked_after=0.01
    When 3 messages are answered while the loop is watched
    And the bridge ends by <end>
    Then the thread of the watch has ended

    Examples:
      | end                          | home       |
      | close                        | its own    |
      | close                        | an adopted |
      | aclose                       | its own    |
      | aclose                       | an adopted |
      | being dropped                | its own    |
      | the end of its loop          | its own    |
      | the end of its loop          | an adopted |

  Scenario Outline: <value> is refused as blocked_after
    Then making a bridge with blocked_after=<value> raises <error>

    Examples:
      | value      | error                |
      | 0          | InvalidArgumentError |
      | -1.0       | InvalidArgumentError |
      | "1"        | InvalidTypeError     |
      | True       | InvalidTypeError     |
      | float("nan") | InvalidArgumentError |
