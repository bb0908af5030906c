@once
Feature: The README's examples run as printed

  Scenario: The quick start runs as printed, and its output is that in the README
    When the example of README.md runs in a process of its own
    Then it succeeds
    And it prints the output

  Scenario Outline: A beginner's mistake in the quick start is reported: <mistake>
    When the example of README.md runs with <found> replaced by <put>
    Then it fails, and standard error says "<error>"

    Examples:
      | mistake                     | found                          | put          | error                               |
      | a number for a thread       | f"account-{n % 4}"             | n % 4        | convert it with str()               |
      | a graph that is not compiled | .compile(InMemorySaver())     | .add_node(print) | pass graph.compile()            |
      | a misspelt policy           | errors="emit"                  | errors="emt" | errors must be 'raise', 'emit' or 'skip' |

  Scenario Outline: The <example> of <page> runs as printed
    When the <example> of docs/<page> runs in a process of its own
    Then it succeeds
    And it prints the <output>

    Examples:
      | page      | example       | output       |
      | agents.md | example       | output       |
      | agents.md | MCP example   | MCP output   |
      | state.md  | example       | output       |
      | state.md  | actor example | actor output |
      | state.md  | graph example | graph output |

  Scenario: The quick start is short
    Then the README's example has at most 40 lines

  Scenario: Each of the two commands is one shell line that the shell can read
    Then the blocks marked "main job, test command" are one line of valid shell each
