Feature: Threads use the same state, through its loop, without a loop of their own

  Scenario Outline: <The counter> that the threads of a pipeline increment at once counts them all
    Given <the counter>, and a pipeline on 8 threads
    When each of 80 items of the pipeline increments it
    Then it is 80

    Examples:
      | The counter               | the counter               |
      | The counter of a state    | the counter of a state    |
      | A value that is updated   | a value that is updated   |
      | A value under a lock      | a value under a lock      |
      | A value in a transaction  | a value in a transaction  |

  @tdd_expected_fail
  Scenario: A global counter that two threads of a pipeline increment at once counts both
    Given a global counter
    When two threads of a pipeline have read it before either has written it
    Then it is 2

  Scenario Outline: A state is opened by a thread on <a loop>, and no other loop is made
    Given <a loop>
    When a thread opens a state on it, uses it in a graph and in a thread, and closes it
    Then both saw the same values, and no other loop was made

    Examples:
      | a loop                                |
      | a bridge                              |
      | a loop that runs in another thread    |

  Scenario: Every method of a state is also in its sync, with the same arguments
    Then each public method of a State is there in its sync, with the same parameters
    And each public method and attribute of a Claim is there in that of its sync

  Scenario: Every method of a state works in its blocking form
    Given a state on a loop in another thread
    When a thread goes through everything that sync has
    Then each call did what that of the state does

  Scenario: Functions passed to sync run in the calling thread
    Given a state on a loop in another thread
    When a thread calls safe_update and transact, and adds tasks from a generator
    Then its functions and its generator ran in that thread

  Scenario: An endless generator is refused as too many items
    Given a state on a loop in another thread
    When a thread adds tasks from a generator that has no end
    Then InvalidArgumentError is raised, which says "10,000 at most"

  Scenario: safe_update and transact of threads retry, and finally raise ContentionError
    Given a state on a loop in another thread
    When a thread calls safe_update and transact, whose functions are always overtaken
    Then ContentionError is raised by each of the 2 calls
    And their functions were called 6 times in all

  Scenario Outline: A block of a thread that <ends> releases what it holds
    Given a state on a loop in another thread
    When a block of a thread around a <thing> <ends>
    Then the <thing> is left <afterwards>

    Examples:
      | thing | ends            | afterwards |
      | lock  | ends            | free       |
      | lock  | raises an error | free       |
      | claim | ends            | complete   |
      | claim | raises an error | free       |

  # -- what cannot be ------------------------------------------------------------------------------

  Scenario: On the loop's own thread a blocking call is refused, instead of blocking forever
    Given a state on a loop in another thread
    When the loop itself calls sync.get, and opens a state on itself
    Then BlockingCallError is raised by each of the 2 calls

  Scenario: A state cannot be pickled for another process, and the error says to open its URL there
    Given a state on a loop in another thread
    When the state, and its sync, are pickled
    Then InvalidTypeError is raised by each of the 2 calls
    And each error says "open the same URL there"

  Scenario Outline: A blocking call ends with LoopUnavailableError when the loop <is gone>
    Given a state on a loop in another thread
    When a thread calls sync.get <while>
    Then LoopUnavailableError is raised

    Examples:
      | is gone                      | while                         |
      | was closed before            | after the loop was closed     |
      | is closed just now           | as the loop is being closed   |
      | stops before it has begun    | as the loop is being stopped  |
      | stops before it has answered | while the loop stops          |
      | is closed meanwhile          | while the loop is closed      |
      | ends, and cancels all tasks  | while all tasks are cancelled |

  Scenario: A call that a stopped loop has not begun is not begun when it runs again
    Given a state on a loop in another thread
    When a thread calls sync.get as the loop is being stopped
    And the loop runs again
    Then LoopUnavailableError is raised

  Scenario: A blocking call ends when Ctrl-C comes in its first step on the loop, which continues
    Given a state on a loop in another thread
    When a thread calls sync.get while it is interrupted on the loop
    Then KeyboardInterrupt is raised

  Scenario: A blocking call raises what the loop's own task factory raises
    Given a state on a loop in another thread
    When a thread calls sync.get while the loop's task factory raises LookupError
    Then LookupError is raised

  Scenario: A non-function is refused in the calling thread
    Given a state on a loop in another thread
    When a thread calls safe_update and transact with None
    Then InvalidTypeError is raised by each of the 2 calls

  Scenario: lock, transaction and open_state_threadsafe return single-use context managers
    Given a state on a loop in another thread
    When a thread enters each of them a second time
    Then UsageError is raised each time, and names the call

  Scenario: A blocking call that takes long is waited for
    Given a state on a loop in another thread
    When a thread waits for sync.get that is answered after the third look at the loop
    Then it has returned

  Scenario: A blocking call survives pauses of the loop that are each over before the next probe
    Given a state on a loop in another thread
    When a thread waits for sync.get, and each look finds a loop that has run and stopped again
    Then it has returned

  Scenario: Ctrl-C in a blocking call cancels it on the loop
    Given a state on a loop in another thread
    When a thread is interrupted that waits for an item
    Then KeyboardInterrupt is raised, and no call waits for an item

  Scenario Outline: A call awaited on another loop and cancelled <when> ends there, and asyncio logs nothing
    Given a loop that runs in another thread
    When a call that is awaited from this loop is cancelled <when>
    Then the call has ended there, and asyncio has logged nothing on either loop

    Examples:
      | when                  |
      | before it has begun   |
      | while it waits        |
      | just as it has failed |

  Scenario: Opening a state on a number is refused
    When a state is opened on a number
    Then InvalidTypeError is raised, which says "event loop or a bridge"
