Feature: Agents in a chain: the observers of an agent's output are not part of its run

  The first agent tells its news through <outputs>, which `bridge.invoke` hands to a second one.

  Scenario Outline: The second agent answers though the first fails after it has emitted to <outputs>
    Given an open bridge on its own loop
    And a first agent whose <outputs> go through the bridge to a second one
    When the first fails while the second is at work
    Then the second has answered "heard news"

    Examples:
      | outputs |
      | outputs |

    @tdd_expected_fail
    Examples: naive: what its observers start is cancelled with the run
      | outputs        |
      | Subject's items |

  Scenario Outline: The second agent's answer can be added to the memory of the first, <when>, through <outputs>
    Given an open bridge on its own loop
    And a first agent whose <outputs> go through the bridge to a second one
    When a subscriber adds the answer to the memory of the first <when>
    Then the memory of the first ends with "heard news"

    Examples:
      | outputs | when                       |
      | outputs | while that runs            |
      | outputs | as soon as its run is over |

    @tdd_expected_fail
    Examples: naive: it is dropped with the run if that fails, and refused when it is over
      | outputs         | when                       |
      | Subject's items | while that runs            |
      | Subject's items | as soon as its run is over |

  Scenario Outline: The second agent can wait until the first is free, and call it, through <outputs>
    Given an open bridge on its own loop
    And a first agent whose <outputs> go through the bridge to a second one
    When the second asks the first, while that runs
    Then the second has answered "told again"

    Examples:
      | outputs |
      | outputs |

    @tdd_expected_fail
    Examples: naive: it counts as asking itself
      | outputs         |
      | Subject's items |

  Scenario Outline: Observers of <what> see no context variable of the run
    Given an agent with observers, and a context variable that is set around its run
    When it runs
    Then the observer of <what> was called, in an empty context each time

    Examples:
      | what          |
      | outputs       |
      | state_changes |
