@once
Feature: A bridge counts the tokens that its runs use, and their costs

  Scenario Outline: Tokens and costs of calls in <node> are counted, in total, by model, thread and message
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And an open bridge that counts usage, where a million tokens of "small" cost 2 and 10, and of "large" 20 and 100
    When in <node>, 3 messages on 2 threads call "small" with 1000 tokens and 500 more, and one without a thread "large" with 10 and 20 more
    Then the usage is this
      | of            | calls | input | output | cost   |
      | in total      | 4     | 3010  | 1520   | 0.0232 |
      | model small   | 3     | 3000  | 1500   | 0.021  |
      | model large   | 1     | 10    | 20     | 0.0022 |
      | thread a      | 2     | 2000  | 1000   | 0.014  |
      | thread b      | 1     | 1000  | 500    | 0.007  |
      | no thread     | 1     | 10    | 20     | 0.0022 |
      | first message | 1     | 1000  | 500    | 0.007  |

    Examples:
      | node             |
      | an async node    |
      | a sync node      |
      | a plain function |

  Scenario: All attempts at a message are counted, and calls that fail are not
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And an open bridge that counts usage, where a million tokens of "small" cost 2 and 10, and of "large" 20 and 100
    When a node calls the model, fails, and is retried; and one whose model answers 500
    Then 2 calls are counted for the first, and none for the second

  Scenario: What is read from the provider's cache, and written there, has its own price
    Then of 1000 tokens, 600 from the cache and 100 to it, and 10 of the answer, at 10, 30, 1 and 12, the cost is 0.0051

  Scenario Outline: <What> counts as calls without a price
    Then usage that is told of <what> has 1 call without a price and costs nothing

    Examples:
      | What                          | what                          |
      | A model that has no price     | a model that has no price     |
      | An answer that tells nothing  | an answer that tells nothing  |
      | An answer that tells nonsense | an answer that tells nonsense |

  Scenario: A model is found by the name that its provider answers with, if not by its own
    Then a price for "large-2026-01" applies to the model "large" that answers as "large-2026-01"

  Scenario: An answer of LangChain's own cache costs nothing, and uses nothing of the limit
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And an open bridge that counts usage, where a million tokens of "small" cost 2 and 10, and of "large" 20 and 100
    When the same question is asked twice, with LangChain's cache
    Then 1 call is counted, and the provider was called once

  Scenario: A message that a node sends is counted for itself, and on a bridge without usage not at all
    Given a provider that allows 1000 requests a minute, counted by a sliding window
    And an open bridge that counts usage, where a million tokens of "small" cost 2 and 10, and of "large" 20 and 100
    When a node sends a message that calls the model to its bridge, and another one to a bridge without usage
    Then the usage of the node's message is nothing, that of the message is 1 call, and in total it is 1 call

  Scenario: Only the last threads and messages are remembered, and the total is complete
    Then usage that keeps 10 of 1000 messages on 1000 threads has 10 of each, and a total of 1000 calls

  Scenario Outline: Prices that are <what> are refused
    Then prices that are <what> raise <error>

    Examples:
      | what                | error                |
      | a list              | InvalidTypeError     |
      | a number for a model | InvalidTypeError    |
      | without output      | InvalidArgumentError |
      | with another field  | InvalidArgumentError |
      | negative            | InvalidArgumentError |
      | not a number        | InvalidArgumentError |
      | text                | InvalidTypeError     |
      | for a number        | InvalidTypeError     |
