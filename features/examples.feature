Feature: The examples do what they say

  `examples/airports.py` is shown by the scenarios of `rxlanggraph run`.

  Scenario: In a reactive pipeline, each month's weather equals what plain Python computes
    When the weather example runs over all its days
    Then its 48 months have the days, rain and longest dry spell that plain Python finds in the file
