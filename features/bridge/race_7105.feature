@tdd_issue @tdd_issue_7105
Feature: Issue 7105: tasks that are created during a clean-up are not missed by it

  The old clean-up took list(tasks), awaited, and then subtracted what it had taken. What arrived
  meanwhile was neither cancelled nor awaited, and ran on after the clean-up had returned.

  Scenario Outline: What arrives while <the bridge> cleans up does not outlive the clean-up
    Given <the bridge> with a run that takes its time to end when it is cancelled
    When it cleans up, and another message arrives meanwhile
    Then nothing runs once the clean-up has returned

    Examples:
      | the bridge            |
      | a RxPyLangGraphBridge |

    @tdd_expected_fail
    Examples: today's way
      | the bridge     |
      | a naive bridge |

  Scenario: The clean-up reports what arrived meanwhile too, and the bridge stays usable
    Given a RxPyLangGraphBridge with a run that takes its time to end when it is cancelled
    When it cleans up, and another message arrives meanwhile
    Then the report counts 2 cancelled runs, none stuck
    And the run that arrived meanwhile never started
    And a message that arrives after it is answered

  Scenario: Eight threads that go on creating tasks through ten clean-ups lose none
    Given a RxPyLangGraphBridge
    When 8 threads create 100 tasks each while 10 clean-ups go on
    Then each task was answered or cancelled, and counted as such
    And nothing runs once one last clean-up has returned
