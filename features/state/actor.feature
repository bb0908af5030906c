Feature: A StateActor has one writer: nothing is shared, and nothing is changed from outside

  # -- one writer ----------------------------------------------------------------------------------

  Scenario Outline: <The state> that two threads change at once keeps both changes
    Given <the state>
    When two threads each add one, the second while the first is between reading and writing
    Then both were added

    Examples:
      | The state              | the state              |
      | The state of an actor  | the state of an actor  |

    @tdd_expected_fail
    Examples: naive: an agent's state, changed from two threads
      | The state             | the state             |
      | An attribute          | an attribute          |

  Scenario: Commands of eight threads and a loop are all applied, one after another
    Given an actor that counts
    When 8 threads and 8 tasks send and ask 200 commands each, all at once
    Then 3200 were counted, and never two at a time

  Scenario: Commands of one thread are applied in the order of sending
    Given an actor that keeps a list
    When a thread sends 0 to 99, by send and ask in turn
    Then the list has 0 to 99 in this order

  Scenario Outline: A <entering> may send while its own thread is <inside>
    Given an actor that its own thread may enter
    When a <entering> comes in at each place of <inside>, and sends
    Then each time all was as it should be, at more than 5 places

    Examples:
      | entering       | inside                   |
      | signal handler | sending the first command |
      | signal handler | sending another command  |
      | signal handler | asking                   |
      | signal handler | subscribing              |
      | signal handler | closing                  |
      | finalizer      | sending the first command |
      | finalizer      | sending another command  |
      | finalizer      | asking                   |
      | finalizer      | subscribing              |
      | finalizer      | closing                  |

  # -- asking --------------------------------------------------------------------------------------

  Scenario: ask gives the state that the command led to, to threads and to loops
    Given an actor that keeps a list
    When a thread asks, and a task asks
    Then each got the state of its own command

  Scenario: An exception of the reducer is raised to the caller of ask, and the state stays
    Given an actor that keeps a list
    When a command is asked, and another one is sent, at which the reducer raises
    Then who asked got the error, the other one is in the log, and the state is as it was

  Scenario: A reducer that raises StopIteration leaves no caller waiting
    Given an actor that keeps a list
    When a task asks a command at which the reducer raises StopIteration
    Then the task gets RuntimeError, in which StopIteration is named

  Scenario Outline: Waiting in a reducer for its own actor, by <method>, is refused instead of blocking
    Given an actor whose reducer asks itself, and calls <method>
    When a command is asked
    Then the command fails with BlockingCallError

    Examples:
      | method    |
      | result    |
      | exception |
      | await     |

  Scenario: A command cancelled before its turn is withdrawn
    Given an actor that keeps a list, and is busy
    When a command is asked and cancelled, and another one asked by a task that is cancelled
    Then neither of them was applied

  Scenario: A command cancelled while it is processed is applied all the same
    Given an actor that keeps a list, and is busy
    When what it is busy with is cancelled
    Then that does nothing

  Scenario Outline: <What> is not a reducer
    Then making an actor with <what> as its reducer raises InvalidTypeError

    Examples:
      | What                 | what                 |
      | A coroutine function | a coroutine function |
      | A part of one        | a part of one        |
      | A generator function | a generator function |
      | An async generator   | an async generator   |
      | An async object      | an async object      |
      | A number             | a number             |

  Scenario Outline: A reducer that turns out to return <no state> fails its command, and leaves nothing un-awaited
    Given an actor whose reducer is a lambda that returns <no state>
    When a command is asked
    Then the command fails with InvalidTypeError

    Examples:
      | no state           |
      | a coroutine        |
      | a generator        |
      | an async generator |
      | a list in itself   |
      | a mapping in itself |

  Scenario: A first state that contains itself is refused
    Then making an actor with a list in itself as its state raises InvalidTypeError

  # -- snapshots -----------------------------------------------------------------------------------

  Scenario Outline: A snapshot cannot be changed: <change it>
    Given an actor whose state has mappings, lists, sets and tuples within each other
    When a reader tries to <change it>
    Then TypeError or AttributeError is raised, and the state is as it was

    Examples:
      | change it                     |
      | set an item                   |
      | delete an item                |
      | set an item of an inner one   |
      | append to an inner list       |
      | add to an inner set           |

  Scenario: A snapshot does not change with the objects that it was made of
    Given an actor whose state has mappings, lists, sets and tuples within each other
    When the initial state is changed, and commands are sent
    Then the first snapshot is as it was

  Scenario: Parts that a command leaves unchanged are not copied
    Given an actor whose state has mappings, lists, sets and tuples within each other
    When a command changes one item
    Then all other items are the very same as before

  Scenario: Frozen dataclasses and named tuples keep their types
    Given an actor whose state is a frozen dataclass with a named tuple
    Then its snapshot is that dataclass, and the named tuple has its type

  # -- states --------------------------------------------------------------------------------------

  Scenario: states emits the current state, then each later one in order, then the end
    Given an actor that keeps a list
    When one observer subscribes before, and another after 3 commands, and it is closed after 6
    Then the first was told 7 states, the second 4, in order, and both that it is complete

  Scenario Outline: An observer that disposes <where> receives nothing more
    Given an actor that keeps a list
    When an observer disposes of states <where>
    Then nothing was told after that

    Examples:
      | where           |
      | in a thread     |
      | in the observer |

  Scenario: An observer that raises is not called again, and affects no other
    Given an actor that keeps a list
    When an observer raises at the first state, and another one does not
    Then the other one was told all states, and the error is in the log

  Scenario: A done-callback that raises a BaseException affects no other
    Given an actor that keeps a list
    When a done-callback of a command raises SystemExit
    Then later commands are applied

  # -- the end -------------------------------------------------------------------------------------

  Scenario Outline: <Closing> applies sent commands, refuses new ones, and ends the thread
    Given an actor that keeps a list
    When 50 commands are sent, and <it is closed>
    Then all 50 were applied, and its thread has ended
    And send and ask raise StateClosedError, states is complete, and closing again does no harm

    Examples:
      | Closing              | it is closed                  |
      | close                | it is closed                  |
      | aclose               | a task awaits its aclose      |
      | The end of with      | its block ends                |
      | The end of async with | its async block ends         |
      | close in an observer | an observer closes it         |
      | aclose in an observer | a loop of an observer closes it |

  Scenario: An actor that was never used has no thread, and can be closed
    Given an actor that keeps a list
    Then it has no thread, and closing it does no harm

  Scenario: Cancelling aclose ends the waiting only
    Given an actor that keeps a list, and is busy
    When a task that awaits its aclose is cancelled
    Then the actor still ends

  Scenario: The thread of an actor that was dropped ends
    Given an actor that keeps a list
    When its last command is applied, and all references to it are dropped
    Then its thread ends

  Scenario: A thread that cannot be started leaves the actor as it was
    Given an actor that keeps a list
    When its thread cannot be started once
    Then the caller is told, and the next command is applied
