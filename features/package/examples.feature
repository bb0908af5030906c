@once
Feature: The examples do what they say

  `examples/airports.py` is shown by the scenarios of `rxlanggraph run`.

  Scenario Outline: Eight agents share a queue, a counter and a configuration in <backend>
    Given a store in <backend>
    When the example of shared state has its eight agents work together
    Then the results, the counter and the configuration are those that plain Python finds

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario: Approvals as a stream are joined with the questions, whatever order they are given in
    When the approvals example runs, with a person who grants what is below 1000
    Then small refunds were paid without a question, and the others as the person decided

  Scenario Outline: The approvals example asks at the console, where the end of the input is a no
    When the approvals example runs at a console, which answers <answers>
    Then it prints that 450 of 450, 0 of 1200 and <last> of 180 were paid

    Examples:
      | answers       | last |
      | "y", "n", "y" | 180  |
      | "y", "n"      | 0    |

  Scenario: Tokens of two answers at once are put together by conversation
    When the tokens example streams the answers about Bern and Rome
    Then each answer has grown token by token, and has ended as a whole

  Scenario: In a reactive pipeline, each month's weather equals what plain Python computes
    When the weather example runs over all its days
    Then its 48 months have the days, rain and longest dry spell that plain Python finds in the file

  Scenario Outline: In the example of overflow, "<policy>" evaluates <kept>
    When the overflow example runs with "<policy>"
    Then it has evaluated <kept>, and rejected all others

    Examples:
      | policy      | kept                 |
      | block       | a1 b1 c1 a2 a3 b2 a4 |
      | error       | a1 b1 c1             |
      | drop_newest | a1 b1 c1             |
      | drop_oldest | a3 b2 a4             |
      | latest      | c1 b2 a4             |

  Scenario: The example of tests in virtual time passes, and takes no time
    When the example of tests in virtual time runs
    Then each of its 3 tests has passed
