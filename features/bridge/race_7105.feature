@tdd_issue @tdd_issue_7105
Feature: Issue 7105: tasks created during a cleanup are not missed by it

  The old cleanup took list(tasks), awaited, and then subtracted what it had taken. What arrived
  meanwhile was neither cancelled nor awaited, and ran on after the cleanup had returned.

  Scenario Outline: Tasks that arrive while <the bridge> cleans up do not outlive the cleanup
    Given <the bridge> with a run that takes its time to end when it is cancelled
    When it cleans up, and another message arrives meanwhile
    Then nothing runs once the cleanup has returned

    Examples:
      | the bridge            |
      | a RxPyLangGraphBridge |

    @tdd_expected_fail
    Examples: naive
      | the bridge     |
      | a naive bridge |

  Scenario: The cleanup reports tasks that arrived meanwhile too, and the bridge stays usable
    Given a RxPyLangGraphBridge with a run that takes its time to end when it is cancelled
    When it cleans up, and another message arrives meanwhile
    Then the report counts 2 cancelled runs, none stuck
    And the run that arrived meanwhile never started
    And the bridge answers the next message

  Scenario: Eight threads that keep creating tasks through ten cleanups lose none
    Given a RxPyLangGraphBridge
    When 8 threads create 100 tasks each while 10 cleanups go on
    Then each task was answered or cancelled, and counted as such
    And nothing runs once one last cleanup has returned
