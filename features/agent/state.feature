Feature: The state of an agent is that of the newest open block, whichever task opened it

  A block is what stands in "async with agent.state_context(...)", or in "with". Each claim about
  several at once is made of a StateMachine and, as a control that must fail, of a way in which
  agents usually keep their state.

  # -- several at once ---------------------------------------------------------------------------

  Scenario Outline: Leaving a block of <the state> does not undo what others have set since
    Given <the state>
    When blocks come and go
      | block | does            |
      | one   | enters RUNNING  |
      | two   | enters THINKING |
      | one   | leaves          |
      | two   | leaves          |
    Then it was RUNNING, THINKING, THINKING and at last IDLE

    Examples:
      | the state       |
      | a state machine |

    @tdd_expected_fail
    Examples: naive: put back after an await, it overwrites the newer state
      | the state                         |
      | a state that is saved and restored |

  Scenario Outline: Two tasks that nest in opposite orders in <the state> both finish
    Given <the state>
    When one task nests RUNNING > THINKING, and another THINKING > RUNNING, and both are inside
    Then both finish
    And it is as before

    Examples:
      | the state       |
      | a state machine |

    @tdd_expected_fail
    Examples: naive: each waits for what the other holds
      | the state                             |
      | a state that is locked while it is on |

  Scenario: Blocks that overlap in any order show the newest one that is open
    Given a state machine
    When blocks come and go
      | block | does            |
      | one   | enters THINKING |
      | two   | enters RUNNING  |
      | three | enters FINISHED |
      | two   | leaves          |
      | four  | enters RUNNING  |
      | four  | leaves          |
      | three | leaves          |
      | one   | leaves          |
    Then it was THINKING, RUNNING, FINISHED, FINISHED, RUNNING, FINISHED, THINKING and at last IDLE

  Scenario: Blocks that 8 threads with 8 tasks each enter and leave at once leave no trace
    Given a state machine that remembers everything
    When 8 threads with 8 tasks each enter and leave 50 blocks
    Then no error is raised
    And it is as before
    And each transition begins where the one before it ended, at no earlier time

  @explored
  Scenario Outline: No interleaving of threads breaks <what>
    When all interleavings of <what> are searched
    Then none breaks it, and none is left to try

    Examples:
      | what                                      |
      | entering and leaving a state              |
      | failing, resetting and leaving a state    |
      | changing a state and watching it          |

  @explored
  Scenario: The same search finds what is wrong with a state that is saved and restored
    When all interleavings of a state that is saved and restored are searched
    Then one is found that ends with "left in"

  # -- errors ------------------------------------------------------------------------------------

  Scenario Outline: A block that <error> leaves shows <state> afterwards
    Given a state machine
    When <error> leaves a block, with and async with
    Then each time it is <state> afterwards, and says why if it is ERROR

    Examples:
      | error             | state |
      | ValueError        | ERROR |
      | TimeoutError      | ERROR |
      | CancelledError    | IDLE  |
      | KeyboardInterrupt | IDLE  |
      | GeneratorExit     | IDLE  |

  Scenario: A task that is cancelled in its block leaves the state as it was
    Given a state machine
    When a task is cancelled in a block
    Then it is as before

  Scenario: Only reset leaves ERROR; blocks are not shown until then
    Given a state machine
    When blocks come and go
      | block  | does             |
      | one    | enters RUNNING   |
      | two    | enters THINKING  |
      | two    | leaves by error  |
      | three  | enters THINKING  |
      | three  | leaves by error  |
      | four   | enters FINISHED  |
      |        | reset            |
      | four   | leaves           |
      | one    | leaves           |
    Then it was RUNNING, THINKING, ERROR, ERROR, ERROR, ERROR, FINISHED, RUNNING and at last IDLE
    And the only cause in its history is that of the first error

  Scenario Outline: <what> sets ERROR, and keeps no block open
    Given a state machine
    When <what> leaves a block
    Then it is in ERROR, because of "<cause>"

    Examples:
      | what                                | cause       |
      | an exception whose text raises      | Unprintable |
      | an exception that cannot be told    | SyntaxError |

  Scenario: Only exceptions set ERROR, and the first one is its reason
    Given a state machine
    When it fails with a text, with a first and with a second exception
    Then the text is refused, and it is in ERROR because of the first

  # -- what is refused ---------------------------------------------------------------------------

  Scenario Outline: <State> is refused from <where>, and nothing changes
    Given a state machine in <where>
    When a block is to enter <State>
    Then IllegalTransitionError names the agent, <where>, <State> and what is legal
    And nothing has changed

    Examples:
      | State    | where    |
      | FINISHED | IDLE     |
      | IDLE     | IDLE     |
      | ERROR    | IDLE     |
      | IDLE     | RUNNING  |
      | ERROR    | RUNNING  |
      | IDLE     | FINISHED |

  Scenario: The table of legal transitions holds, for every pair of states
    Then a block enters exactly what LEGAL_TRANSITIONS says, from each state that can be had

  Scenario Outline: <thing> is not a state
    Given a state machine
    When a context is made for <thing>
    Then InvalidArgumentError is raised, a subclass of ValueError

    Examples:
      | thing                           |
      | 'RUNNING'                       |
      | None                            |
      | 1                               |
      | the RUNNING of another enum     |

  Scenario: A context is for one block at a time
    Given a state machine
    When one context is entered twice
    Then the second time is a UsageError, and the first block goes on

  Scenario: A context can be used again when its block is over
    Given a state machine
    When one context is entered, left and entered again
    Then it is RUNNING in each block, and IDLE after each

  # -- history -----------------------------------------------------------------------------------

  Scenario: The history has the last transitions, with their times
    Given a state machine with a history of 3 and a clock that says 1, 2, 3, 4
    When two blocks of RUNNING come and go
    Then its history is
      | before  | after   | at |
      | RUNNING | IDLE    | 2  |
      | IDLE    | RUNNING | 3  |
      | RUNNING | IDLE    | 4  |

  Scenario: A clock that is set back does not reverse the order of the times
    Given a state machine with a history of 3 and a clock that says 5, 6, 2, 7
    When two blocks of RUNNING come and go
    Then its history is
      | before  | after   | at |
      | RUNNING | IDLE    | 6  |
      | IDLE    | RUNNING | 6  |
      | RUNNING | IDLE    | 7  |

  Scenario Outline: A history of <number> is refused
    When a state machine is made with a history of <number>
    Then InvalidArgumentError is raised, a subclass of ValueError

    Examples:
      | number |
      | -1     |
      | 1.5    |
      | True   |
      | None   |

  # -- observers ---------------------------------------------------------------------------------

  Scenario Outline: An observer of <the state> that is running is not entered by another thread
    Given <the state> with an observer
    When another thread changes the state while the observer is told of a change
    Then the observer was told of one change after another, in order

    Examples:
      | the state       |
      | a state machine |

    @tdd_expected_fail
    Examples: naive: an RxPY Subject calls its observers from any thread
      | the state                          |
      | a state published through a Subject |

  Scenario Outline: An observer of <the state> that raises affects neither the agent nor the others
    Given <the state> with an observer
    When another observer, before it, raises
    Then a block is entered and left, and the observer is told of both

    Examples:
      | the state       |
      | a state machine |

    @tdd_expected_fail
    Examples: naive: a Subject raises into the code that changed the state
      | the state                           |
      | a state published through a Subject |

  Scenario: An observer that raised is named in the log, and not called again
    Given a state machine with an observer
    When another observer, before it, raises
    Then the log has its error once, and names the agent

  Scenario: Concurrent changes by 8 threads are published in the order of the history, one at a time
    Given a state machine that remembers everything
    And 3 observers
    When 8 threads with 2 tasks each enter and leave 50 blocks
    Then each observer was told the whole history, in order, one at a time

  Scenario: An observer may change the state: the others receive both changes in order
    Given a state machine with an observer that resets every ERROR, and another behind it
    When it fails
    Then both were told IDLE > ERROR, ERROR > IDLE

  Scenario: An observer receives the changes after its subscription, until it disposes
    Given a state machine
    When an observer subscribes between two changes, and disposes while it is told of the third
    Then it was told of the second and the third alone

  Scenario Outline: While <who> is called, other threads can use the state
    When another thread uses it while <who> is called
    Then no error is raised

    Examples:
      | who                      |
      | an observer              |
      | the clock                |
      | the text of an exception |

  Scenario Outline: An observer that raises <exception> in <a thread> affects neither the block nor the other observers
    Given a state machine with an observer
    When an observer before it raises <exception> in <a thread>
    Then the block is entered and left, the other observer receives both changes, and the error is logged once

    Examples:
      | exception      | a thread        |
      | CancelledError | the main thread |
      | CancelledError | another thread  |
      | SystemExit     | another thread  |

  Scenario: An observer that ends the program leaves no block open
    Given a state machine
    When an observer raises SystemExit as a block is entered
    Then SystemExit arrives there, and it is as before

  # -- interruptions -----------------------------------------------------------------------------

  Scenario Outline: A <entering> may enter while its thread is <inside>
    Given a state machine that its own thread may enter
    When a <entering> comes in at each place of <inside>, and uses all of it
    Then each time all was as it should be, at more than 5 places

    Examples:
      | entering       | inside                 |
      | signal handler | entering a block       |
      | signal handler | leaving a block        |
      | signal handler | leaving it by an error |
      | signal handler | failing                |
      | signal handler | resetting              |
      | signal handler | reading the history    |
      | signal handler | subscribing            |
      | finalizer      | entering a block       |
      | finalizer      | leaving a block        |
      | finalizer      | leaving it by an error |
      | finalizer      | failing                |
      | finalizer      | resetting              |
      | finalizer      | reading the history    |
      | finalizer      | subscribing            |

  @tdd_expected_fail
  Scenario: A signal handler may enter a state under a plain lock
    Given a state under a plain lock that its own thread may enter
    When a signal handler comes in at each place of changing it, and changes it
    Then each time all was as it should be, at more than 0 places

  Scenario: A generator that is dropped inside its block leaves it
    Given a state machine
    When a generator is dropped inside a block
    Then it is as before
