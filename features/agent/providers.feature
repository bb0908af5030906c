@once
Feature: A bounded memory shows what providers accept

  Scenario Outline: <rules> accept what a memory bounded to <n> <unit> shows, with tools as <form>
    Given 40 random conversations with tools as <form>
    When each is added to a memory of at most <n> <unit>
    Then each time a model is asked, <rules> would take what it is shown

    Examples:
      | rules                    | n | unit     | form             |
      | OpenAI, Anthropic, Gemini | 1 | messages | messages         |
      | OpenAI, Anthropic, Gemini | 2 | messages | messages         |
      | OpenAI, Anthropic, Gemini | 3 | messages | messages         |
      | OpenAI, Anthropic, Gemini | 4 | messages | messages         |
      | OpenAI, Anthropic, Gemini | 5 | messages | messages         |
      | OpenAI, Anthropic, Gemini | 8 | messages | messages         |
      | OpenAI, Anthropic, Gemini | 12 | words   | messages         |
      | Anthropic, Gemini        | 2 | messages | Anthropic blocks |
      | Anthropic, Gemini        | 3 | messages | Anthropic blocks |
      | Anthropic, Gemini        | 5 | messages | Anthropic blocks |
      | Anthropic, Gemini        | 8 | messages | Anthropic blocks |
      | Anthropic, Gemini        | 12 | words   | Anthropic blocks |
      | Anthropic, Gemini        | 5 | messages | both             |
      | OpenAI, Anthropic, Gemini | 3 | messages | calls that cannot be read |
      | OpenAI, Anthropic, Gemini | 5 | messages | calls that cannot be read |
      | OpenAI, Anthropic, Gemini | 100 | messages | calls that cannot be read |

    @tdd_expected_fail
    Examples: naive: the newest that there is room for
      | rules                    | n | unit     | form             |
      | OpenAI, Anthropic, Gemini | 5 | newest messages | messages |

  Scenario: An agent with a bounded memory is answered by a provider, turn after turn
    Given an agent over a graph with tools, with a memory of at most 4 messages and a strict provider
    When it is asked 20 times, and uses its tool each second time
    Then it is answered each time

  Scenario: The result of a tool call that was dropped is dropped, too
    Given a memory of at most 4 messages
    When these are added
      | role      | content | calls | answers |
      | user      | 1       |       |         |
      | assistant | call 1  | a     |         |
      | user      | 2       |       |         |
      | assistant | call 2  | b     |         |
      | tool      | to b    |       | b       |
      | user      | 3       |       |         |
    Then it shows "2", "call 2", "to b" and "3"
    When these are added
      | role      | content | calls | answers |
      | tool      | to a    |       | a       |
    Then it shows "2", "call 2", "to b" and "3"
