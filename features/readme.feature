Feature: What the README prints is true

  Scenario: The thirty-line example runs as printed, and prints what the README says
    When the README's example runs in a process of its own
    Then it succeeds
    And its line is the one that the README promises

  Scenario Outline: The <example> of the page on agents runs as printed
    When the <example> of docs/agents.md runs in a process of its own
    Then it succeeds
    And it prints the <output>

    Examples:
      | example     | output     |
      | example     | output     |
      | MCP example | MCP output |

  Scenario: The example is thirty lines long, give or take a blank one
    Then the README's example has at most 32 lines

  Scenario: Each of the two commands is one shell line that the shell can read
    Then the blocks marked "main job, test command" are one line of valid shell each
