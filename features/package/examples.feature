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

  Scenario: In a reactive pipeline, each month's weather equals what plain Python computes
    When the weather example runs over all its days
    Then its 48 months have the days, rain and longest dry spell that plain Python finds in the file
