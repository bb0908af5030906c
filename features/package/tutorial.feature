@once
Feature: The tutorial runs as printed

  Scenario Outline: "<section>": the commands of the tutorial print what it says
    Given the files of the tutorial up to "<section>", in an empty folder
    When the <count> commands of that section run
    Then each prints what the tutorial says, and nothing to standard error

    Examples:
      | section                              | count |
      | An agent for each customer           | 1     |
      | Stream the tokens, and ask a person  | 1     |
      | Approve, in another process          | 2     |
      | A file of requests, and a crash      | 2     |

  Scenario: A question that was answered is not asked again
    Given the files of the tutorial up to "Approve, in another process", in an empty folder
    When the 2 commands of that section run
    Then the last of them prints nothing when it runs again

  Scenario: No block of the tutorial is left out
    Then each block of the tutorial is a file, a command or its output, but for the installation
