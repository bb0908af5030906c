Feature: A memory with a bound forgets the oldest messages, and never splits a turn of tool calls

  Scenario: A memory bounded to 10 never shows more, and stores hardly more
    Given a memory of at most 10 messages
    When 1000 messages of the user are added one by one
    Then it never showed more than 10, the newest ones
    And it never kept more than a quarter more, and a few

  Scenario: A memory that is bounded by tokens does not count at each addition
    Given a memory of at most 100 words
    When 1000 messages of 5 words are added one by one, unseen
    Then words were counted less often than that
    And it shows the newest 20

  Scenario: Words are counted a few times, however much has to go so that a long request has room
    Given a memory of at most 1000 words
    When a request of 800 words is followed by 999 answers of one word, and a request of one word
    Then it shows both requests, with the newest 199 answers
    And words were counted less than 50 times

  Scenario Outline: Bounded to <n>, <the memory> keeps tool calls and their results together
    Given <the memory> of at most <n> messages
    When a long conversation with tools is added turn by turn
    Then each time no result stood without its call, and no call without its results

    Examples:
      | the memory | n |
      | a memory   | 1 |
      | a memory   | 2 |
      | a memory   | 3 |
      | a memory   | 4 |
      | a memory   | 5 |
      | a memory   | 6 |
      | a memory   | 7 |

    @tdd_expected_fail
    Examples: naive: the end of the list
      | the memory                          | n |
      | a memory that keeps the end of a list | 4 |

  Scenario: What is kept begins with the user: with the request that was answered with it
    Given a memory of at most 3 messages
    When these are added
      | role      | content | calls | answers |
      | assistant | hello   |       |         |
      | user      | 1       |       |         |
      | assistant | call    | a     |         |
      | tool      | to a    |       | a       |
      | assistant | 2       |       |         |
    Then it shows "1" and "2"
    When these are added
      | role      | content | calls | answers |
      | user      | 3       |       |         |
      | assistant | 4       |       |         |
    Then it shows "3" and "4"

  Scenario: A system message at the beginning is kept
    Given a memory of at most 3 messages
    When these are added
      | role      | content |
      | system    | be nice |
      | user      | 1       |
      | assistant | 2       |
      | user      | 3       |
      | assistant | 4       |
    Then it shows "be nice", "3" and "4"

  Scenario: A turn of tool calls that is not over is kept, whatever others add
    Given a memory of at most 4 messages
    When these are added
      | role      | content | calls | answers |
      | user      | 1       |       |         |
      | assistant | call    | a b   |         |
      | user      | 2       |       |         |
      | user      | 3       |       |         |
      | tool      | to a    |       | a       |
      | user      | 4       |       |         |
      | user      | 5       |       |         |
    Then it shows "1", "call", "to a" and "5"
    When these are added
      | role      | content | calls | answers |
      | tool      | to b    |       | b       |
    Then it shows "1", "call", "to a", "5" and "to b"
    When these are added
      | role      | content | calls | answers |
      | assistant | 6       |       |         |
    Then it shows "5" and "6"

  Scenario: A turn that is larger than the bound is shown until it is over
    Given a memory of at most 2 messages
    When these are added
      | role      | content | calls | answers |
      | user      | 1       |       |         |
      | assistant | call    | a b   |         |
      | tool      | to a    |       | a       |
      | tool      | to b    |       | b       |
    Then it shows "1", "call", "to a" and "to b"
    When these are added
      | role      | content | calls | answers |
      | assistant | 2       |       |         |
    Then it shows "1" and "2"

  Scenario: Calls without results do not fill the memory
    Given a memory of at most 10 messages
    When 100 calls are added without results
    Then it never showed more than 10, the newest ones

  Scenario: Two turns with the same ids are distinguished
    Given a memory of at most 3 messages
    When these are added
      | role      | content | calls | answers |
      | assistant | call 1  | a     |         |
      | tool      | to 1    |       | a       |
      | assistant | call 2  | a     |         |
      | tool      | to 2    |       | a       |
      | assistant | done    |       |         |
    Then it shows "call 2", "to 2" and "done"

  @once
  Scenario: A bounded memory keeps its rules for any messages in any order
    Then for 300 random conversations, it shows what it promises at every step

  Scenario Outline: Tokens are counted by <counter>
    Given a memory of at most <n> tokens, counted by <counter>
    When these are added
      | role      | content         |
      | user      | one two three   |
      | user      | four five six   |
      | user      | seven eight     |
    Then it shows "four five six" and "seven eight"

    Examples:
      | counter                  | n  |
      | a function               | 5  |
      | a chat model             | 5  |
      | LangChain's estimation   | 17 |

  Scenario: A counter that raises adds nothing, and has no lasting effect
    Given a memory of at most 100 words
    And its counter raises
    When 100 messages are added until one is refused
    Then what was refused is not there, and the error is the counter's own
    When its counter counts again
    Then it shows what was not refused

  Scenario: While tokens are counted, other threads add, read and clear
    Given a memory of at most 100 words
    When another thread clears it and adds a message while words are counted
    Then it has that message alone

  Scenario: Messages that two threads find to be too many at once are dropped once
    Given a memory of at most 100 words
    When another thread trims it and adds a message while words are counted
    Then it shows the newest 20

  Scenario: 10 threads add while the counter raises now and then, and nothing is lost or out of order
    Given a memory of at most 250 words
    When 10 threads add 50 messages of 5 words each, and each 7th count raises
    Then it shows the newest of those that were not refused, each thread's in its own order

  Scenario: One message that is added again and again does not fill the memory
    Given a memory of at most 10 messages
    When one message is added 1000 times
    Then it shows it 10 times, and keeps hardly more

  Scenario Outline: A memory with <arguments> is refused
    When a memory is made with <arguments>
    Then <error> is raised, which says "<words>"

    Examples:
      | arguments                          | error                | words                              |
      | max_messages=0                     | InvalidArgumentError | max_messages must be a whole number from 1, not 0 |
      | max_messages=True                  | InvalidArgumentError | not True                           |
      | max_tokens=1.5                     | InvalidArgumentError | max_tokens must be a whole number from 1 |
      | token_counter=len                  | InvalidArgumentError | needs max_tokens                   |
      | max_tokens=5, token_counter='gpt'  | InvalidTypeError     | a chat model or a plain function   |
      | max_tokens=5, token_counter=sleep  | InvalidTypeError     | a chat model or a plain function   |
