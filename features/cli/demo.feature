Feature: rxlanggraph demo shows what plain asyncio loses, and that the bridge loses nothing

  The demo counts the airports of each state: a message for each airport, a thread for each state, the
  running count in LangGraph's checkpoints. It needs nothing but the installed package.

  Scenario: Plain asyncio loses updates, the bridge none, and each result is compared
    When the demo runs over 600 airports
    Then its exit status is 0
    And it reports lost updates for plain asyncio
    And it reports "lost updates   0 of 600" and "wrong results  0 of 600" for the bridge
    And it reports the speed of both

  Scenario: The demo fails if the bridge ever loses an update
    Given a bridge that loses one update
    When the demo runs over 20 airports
    Then its exit status is 1
    And it asks to report the defect

  Scenario: The demo's airports are those of the example, in the same order
    Then the demo's airports are the columns "iata" and "state" of the example's file
