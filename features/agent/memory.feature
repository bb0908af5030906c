Feature: The memory of an agent has every message, intact, in one order for all readers

  Each claim about several at once is made of a Memory and, as a control that must fail, of a way
  in which agents usually keep their messages.

  # -- several at once ------------------------------------------------------------------------------

  Scenario Outline: 150 messages that three roles add at once from <where> are all in <the memory>
    Given <the memory>
    When user, assistant and tool add 50 messages each at once, from <where>
    Then all 150 are there, each intact, each role's in its own order

    Examples:
      | the memory | where   |
      | a memory   | tasks   |
      | a memory   | loops   |
      | a memory   | threads |

    @tdd_expected_fail
    Examples: naive: the lock belongs to the loop that first waited for it
      | the memory                          | where |
      | a memory that an asyncio.Lock guards | loops |

  Scenario Outline: No message comes between a tool call and its results in <the memory>
    Given <the memory>
    When 8 <writers> at once add 20 turns of a call and 2 results each, and as many other messages
    Then every turn is in one piece, and nothing is missing
    And concurrent readers saw only whole turns

    Examples:
      | the memory | writers |
      | a memory   | tasks   |
      | a memory   | threads |

    @tdd_expected_fail
    Examples: naive: message after message, others' between
      | the memory          | writers |
      | a memory that is a list | tasks   |

  @explored
  Scenario Outline: No interleaving of threads breaks <what>
    When all interleavings of <what> are searched
    Then none breaks it, and none is left to try

    Examples:
      | what                                  |
      | committing a turn, looking and adding |
      | committing and discarding a turn      |
      | trimming and adding                   |
      | trimming in two threads, and adding   |
      | trimming and clearing                 |

  @explored
  Scenario: The same search finds the race of a memory that is read, cut and written back
    When all interleavings of a memory that is read, cut and written back are searched
    Then one is found that ends with "lost"

  Scenario: A snapshot stays what it was, and the list that was added may change
    Given a memory
    When a list of two messages is added, a snapshot taken, the list emptied, and a message added
    Then the snapshot has two messages, and the memory three

  Scenario: What cannot be added leaves nothing behind
    Given a memory
    When a list is added in which the third message has a wrong role
    Then InvalidArgumentError is raised
    And the memory is empty

  Scenario: An agent refuses what is not a list of messages
    When "a text" and "a mapping" are added to an agent as if they were lists
    Then InvalidTypeError is raised by each of the 2 calls
    And its memory is empty

  Scenario Outline: <what> is not taken for a list of messages
    Given a memory
    When <what> is added as if it were a list
    Then InvalidTypeError is raised
    And the memory is empty

    Examples:
      | what                  |
      | a text                |
      | a mapping             |
      | a LangChain message   |
      | a list of numbers     |
      | a number              |
      | a message             |

  # -- interruptions --------------------------------------------------------------------------------

  Scenario Outline: A <entering> may enter while its thread is <inside> a memory
    Given a memory that its own thread may enter
    When a <entering> comes in at each place of <inside>, and uses all of it
    Then each time all was as it should be, at more than 5 places

    Examples:
      | entering       | inside            |
      | signal handler | adding to         |
      | signal handler | adding a turn to  |
      | signal handler | looking at        |
      | signal handler | loading           |
      | signal handler | committing to     |
      | signal handler | ending a block of |
      | signal handler | discarding from   |
      | finalizer      | adding to         |
      | finalizer      | adding a turn to  |
      | finalizer      | looking at        |
      | finalizer      | loading           |
      | finalizer      | committing to     |
      | finalizer      | ending a block of |
      | finalizer      | discarding from   |

  Scenario Outline: A signal handler may clear a memory while its thread is <inside> it
    Given a memory that its own thread may enter
    When a signal handler comes in at each place of <inside>, and clears it
    Then each time all was as it should be, at more than 5 places

    Examples:
      | inside            |
      | adding to         |
      | adding a turn to  |
      | looking at        |
      | loading           |
      | committing to     |
      | ending a block of |
      | discarding from   |
