Feature: A turn's messages come into a memory all at once or not at all

  Scenario: Other code sees a turn when it is over, in one piece behind messages added meanwhile
    Given a memory
    When a turn adds "a", others add "b", the turn adds "c", and looks
    Then it saw "b", "a" and "c", and others "b" alone
    When the turn is over
    Then it shows "b", "a" and "c"

  Scenario Outline: A turn that <end> leaves nothing behind in <the memory>
    Given <the memory>
    When a turn adds a message and <end>
    Then the memory is empty

    Examples:
      | the memory | end               |
      | a memory   | fails             |
      | a memory   | is cancelled      |
      | a memory   | is discarded      |

    @tdd_expected_fail
    Examples: naive: what was added until then stays
      | the memory              | end   |
      | a memory that is a list | fails |

  Scenario Outline: A leftover of a turn in <where> cannot write once it was <ended>
    Given a memory
    When a turn is <ended> while <where> goes on, which then adds a message
    Then it got an AgentError that says "<ended>", and its message is not there

    Examples:
      | where      | ended     |
      | a task     | committed |
      | a task     | discarded |
      | a thread   | committed |
      | a callback | discarded |

  Scenario: A leftover of a turn can still read, and sees what all others see
    Given a memory
    When a task that a turn has left behind looks
    Then it saw what other code sees

  Scenario: Turns of two memories in each other are kept apart
    Given a memory
    When in a turn of it a turn of another memory adds to both
    Then each message is in its own memory

  Scenario: Two concurrent turns are stored one after the other, each in one piece
    Given a memory
    When 8 threads commit 50 turns of 3 messages each at once
    Then every turn is in one piece, and nothing is missing

  Scenario: A turn is never cut from what its own run sees, and cuts nothing from what others see
    Given a memory of at most 2 messages
    When these are added
      | role      | content |
      | user      | 1       |
      | assistant | 2       |
    And a turn adds "3", "4" and "5", looks, and is discarded
    Then the turn saw "3", "4" and "5"
    And it shows "1" and "2"

  Scenario: A turn whose commit fails is dropped, and the block raises
    Given a memory of at most 100 words
    When a turn is committed while its counter raises
    Then the block raised the counter's own error, and nothing of the turn is there

  Scenario Outline: A turn that another thread has <ended> <when> is <ended>, and its block ends well
    Given a memory of at most 100 words
    When another thread has <ended> a turn <when>
    Then no error is raised
    And the turn is <ended>

    Examples:
      | ended     | when                  |
      | committed | while its block is on |
      | discarded | while its block is on |
      | committed | as its block ends     |
      | discarded | as its block ends     |

  Scenario Outline: A turn that is in a generator is <ended> where another task <does>
    Given a memory
    When a task begins a turn in a generator, and another task <does>
    Then no error is raised
    And the turn is <ended>
    And what the other task adds then is there at once

    Examples:
      | does            | ended     |
      | closes that     | discarded |
      | lets it go on   | committed |

  Scenario: Messages that a turn drops stay dropped
    Given a memory
    When a turn adds a message, clears the memory, adds another and is over
    Then only the last is there

  Scenario Outline: A turn cannot be <twice>
    Given a memory
    When a turn is <twice>
    Then <error> is raised, which says "<words>"

    Examples:
      | twice                      | error      | words         |
      | committed twice            | AgentError | was committed |
      | committed once discarded   | AgentError | was discarded |
      | written to once committed  | AgentError | was committed |
      | cleared once committed     | AgentError | was committed |
      | entered twice              | UsageError | one block     |
