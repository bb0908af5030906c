@once
Feature: A scenario tagged @tdd_expected_fail must fail to count as passed

  The control beside a test shows that the test can fail. So nothing but the failed assertion
  that the control is there for may turn it green. Each scenario here runs a real behave.

  Scenario: Without the tag, a failed assertion is a failure
    Given a scenario without the tag whose step fails an assertion
    When behave runs it
    Then behave is red, and counts it as failed

  Scenario Outline: With the tag, a scenario whose step <does this> counts as <verdict>
    Given a scenario with the tag whose step <does this>
    When behave runs it
    Then behave is <colour>, and counts it as <verdict>

    Examples: what was expected
      | does this          | colour | verdict |
      | fails an assertion | green  | passed  |

    Examples: what says nothing about the claim
      | does this                                      | colour | verdict       |
      | passes                                         | red    | failed        |
      | raises an error                                | red    | error         |
      | is not defined                                 | red    | error         |
      | is pending                                     | red    | error         |
      | fails an assertion, the next being not defined | red    | error         |
      | fails an assertion, a hook failing after it    | red    | hook_error    |
      | fails an assertion, a cleanup failing after it | red    | cleanup_error |

  Scenario: An expected failure counts its step as passed too
    Given a scenario with the tag whose step fails an assertion
    When behave runs it
    Then behave counts 1 step as passed, and 0 as failed

  Scenario: A tag on the feature reaches each of its scenarios, and every other stays as it is
    Given a feature with the tag whose scenarios fail an assertion, pass, and fail an assertion
    When behave runs it
    Then behave is red, and counts 2 as passed and 1 as failed
