Feature: Questions that wait are answered from the page, each once

  Background:
    Given a bridge whose page is open

  Scenario: A question is there until it is answered
    When a message asks on the thread "a/b <script>"
    Then the page has its question, with the value hidden
    When it is answered with true
    Then the answer is 200, ended ok
    And the page has no question

  Scenario: Of two answers at once one wins
    When a message asks on the thread "ada"
    And it is answered by 8 clients at once
    Then 1 answer is 200, and the other 7 are 409
    And the graph was answered once

  Scenario: A question whose answer has ended is not answered again before the page hears of that
    When a message asks on the thread "ada"
    And it is answered, and again before the page hears of the end of the first answer
    Then 1 answer is 200, and the other 1 are 409
    And the graph was answered once

  Scenario: An answer to a question that was answered elsewhere is 409, and the question goes
    When a message asks on the thread "ada"
    And it is answered behind the back of the page
    And the page, which was not told, answers too
    Then the answer is 409, which says "answered or dropped elsewhere"
    And the page has no question

  Scenario: An answer that takes long is accepted, and others are refused meanwhile
    When a message asks on the thread "ada", and waits when it is answered
    And it is answered with true
    Then the answer is 202, accepted
    And a second answer is 409

  Scenario: A question that is asked again keeps its place, and takes another answer
    When a message asks on the thread "ada", and again
    And it is answered with true
    Then the answer is 200, ended interrupted
    And the page has 1 question

  Scenario: Questions of earlier runs are there if their graph was named
    When a message has asked before the page was made for its graph
    Then the page has its question
    When it is answered with true
    Then the answer is 200, ended ok

  Scenario: Of more questions than are kept, the oldest are forgotten, and counted
    When 1005 threads have asked one question each
    Then the latest 1000 are kept, and 5 are counted as left out

  Scenario: A closed bridge takes no answer
    When a message asks on the thread "ada"
    And the bridge of the page is closed
    And it is answered with true
    Then the answer is 503, which says "BridgeClosedError"

  Scenario Outline: Why an answer was refused quotes what is asked only where that is shown
    Given the page is made anew, with content <shown>
    When a message asks on the thread "ada"
    And it is answered behind the back of the page, and something else is asked
    And the page, which was not told, answers too
    Then the answer is 409, which quotes <quotes>

    Examples:
      | shown  | quotes          |
      | hidden | nothing         |
      | shown  | what is pending |

  Scenario: A function of the call that fails on an answer refuses it, and it can be answered again
    When a message asks with a config that fails on answers
    And it is answered with true
    Then the answer is 503, which says "ZeroDivisionError"
    And the page has 1 question

  Scenario: Questions of a stream are answered by a run of their own
    When a streamed message asks on the thread "ada"
    And it is answered with true
    Then the answer is 200, ended ok
