Feature: A run whose loop is gone, or stopped while it waits, blocks no other

  Scenario: A run whose loop is closed admits the next one
    Given a runnable agent that never answers "lost"
    When a loop is closed in the middle of its run
    Then the next run is answered with "answer"
    And the agent is IDLE
    When the run that was cut off is thrown away
    Then the agent is IDLE
    And the next run is answered with "answer"

  Scenario: A caller that waits behind a run whose loop is closed enters
    Given a runnable agent that never answers "lost"
    And those in line look every 0.01 s whether the loop of the run is closed
    When a loop is closed in the middle of its run while another caller waits
    Then the one who waited is answered with "answer"
    When the run that was cut off is thrown away
    Then the next run is answered with "answer"

  Scenario: A queued caller whose loop is stopped when its turn comes blocks no other, and enters later
    Given a runnable agent that answers when the gate opens
    And those in line look every 0.01 s whether the loop of the run is closed
    When it is run, and another caller lines up on a loop that is then stopped
    And the gate opens once two more have come, of whom one waits and one does not
    Then the one who waits is answered with "answer", and so is a newcomer who does not
    When the loop that was stopped goes on
    Then the one who waited is answered with "answer"

  Scenario: A caller of a pool whose loop is stopped when its turn comes blocks no other, and enters later
    Given a pool whose only agent answers when the gate opens
    When callers of three more threads line up on two loops, the first of which is stopped
    Then all of them are answered

  Scenario Outline: A call whose loop is closed has no place in a pool: a caller that <comes when>
    Given a pool whose only agent never answers "lost", and has a gate
    And callers that wait for a place look every 0.05 s whether the loop of a run is closed
    When the loop of its call is closed, and a caller on another thread <comes when>
    Then that caller is answered, and the pool has one agent

    Examples:
      | comes when       |
      | waits already    |
      | comes afterwards |

  Scenario: A run that was cut off, and is collected during the next, does not affect that
    Given a runnable agent that never answers "lost", and has a gate
    When a loop is closed in the middle of its run
    And the run that was cut off is thrown away during the next run
    Then that run has kept its request, and its output was open

  Scenario: A run collected while another caller checks it admits only one
    Given a guard with a caller in whose loop is being closed, and one in line
    When another comes, and finds the first gone just as a collector throws it away
    Then only one of the two is in

  Scenario: Waiting for one's turn in a pipeline does not count against the agent's timeout
    Given a runnable agent that answers when the gate opens
    When a message that has 20 s for its run waits for longer behind another one
    Then both are answered
