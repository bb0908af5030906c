Feature: Values that agents share are never lost, never stale, and always JSON

  Each claim is made of the shared state and, as a control that must fail, of naive ones beside it.

  # -- many at once --------------------------------------------------------------------------------

  Scenario Outline: <The way> of a hundred agents counts to 100
    Given <the way> of several agents
    When each of them adds 1 to the same counter, all at once
    Then the counter is 100

    Examples:
      | The way            | the way            |
      | increment_counter  | increment_counter  |
      | safe_update        | safe_update        |
      | transact           | transact           |
      | A value under lock | a value under lock |

    @tdd_expected_fail
    Examples: naive: all read before any of them writes
      | The way                   | the way                   |
      | A global counter          | a global counter          |
      | A file                    | a file                    |
      | A row that is updated     | a row that is updated     |

  @valkey @tdd_expected_fail
  Scenario: Plain Redis: GET and then SET counts to 100
    Given a Valkey server
    When each of 100 clients adds 1 to the same counter, all at once
    Then the counter is 100

  Scenario Outline: <The way> of twenty agents loses none of what they put into one list
    Given <the way> of several agents
    When each of them appends its number to the same list, all at once
    Then all 20 numbers are in the list

    Examples:
      | The way     | the way     |
      | safe_update | safe_update |
      | transact    | transact    |

    @tdd_expected_fail
    Examples: naive
      | The way          | the way          |
      | A global counter | a global counter |
      | A file           | a file           |

  Scenario Outline: <The way> keeps both changes of a configuration that two agents change at once
    Given <the way> of several agents
    When each of them sets another option of the same configuration, both at once
    Then the configuration has both options

    Examples:
      | The way     | the way     |
      | safe_update | safe_update |
      | transact    | transact    |

    @tdd_expected_fail
    Examples: naive: the row is stale
      | The way               | the way               |
      | A row that is updated | a row that is updated |

  # -- optimistic ----------------------------------------------------------------------------------

  Scenario: Of two writers that have read the same version, one writes, and the other is refused
    Given a shared state
    When two agents read a value, and both write with compare_and_set
    Then one of them was told True, the other False

  Scenario: safe_update makes the given attempts, with pauses, and then raises ContentionError
    Given a shared state, in which another writer is faster 1000 times
    When safe_update is called with 5 attempts
    Then ContentionError is raised, which names the key
    And its function was called 5 times, and nothing was written
    And between the attempts it has paused, for 0.3 seconds at most

  Scenario: safe_update passes the latest value, to functions and coroutines alike
    Given a shared state, in which another writer is faster twice
    When safe_update is called with a coroutine function
    Then it has written what its third call made of the third value

  Scenario: An exception of safe_update's function ends the update
    Given a shared state
    When safe_update is called with a function that raises KeyError
    Then KeyError is raised, and nothing was written

  Scenario: A value in memory is read and replaced at once
    When a value of an opened store in memory is read, replaced and updated
    Then each has ended in its first step, without the calls that could wait

  Scenario: A state in memory that is closed while the function runs is written to no more
    When the function of an update in memory closes its state, while another one has the store open
    Then the update has ended with StateClosedError, and nothing was written

  Scenario: A value in memory is read and replaced on the loop that opened it
    When values of an opened store in memory are read and replaced on another loop
    Then each has ended with WrongThreadError, and nothing was written

  Scenario: Values in memory that are read at once are of one moment
    When two keys in memory that are gone at the same time are read while that time comes
    Then both are there, or none of them

  Scenario: A wrapper around an opened store in memory is called for each value
    When a value is read, replaced and updated through something that counts the calls to memory
    Then it has counted 3 reads and 2 commits

  Scenario: A concurrent write of another loop in another thread is not lost
    When a value in memory is updated, and by another thread with a loop of its own meanwhile
    Then both are in it, and the function was called with both values

  Scenario: Updates of one state do not overtake each other: each calls its function once
    When 64 tasks of one state update a key 4 times each with safe_update
    Then its value is 256, and the functions were called 256 times

  Scenario: Updates that wait for their turn begin from what the one before has written
    When 64 tasks of one state update a key 4 times each with safe_update
    Then its value is 256, and it was read once

  Scenario: The previous update's value is only a guess: another state may have written since
    When an update waits for its turn, and another state writes after the one before
    Then its function was called with both values, and nothing was lost

  Scenario: An update that begins while the previous one is being written reads the value itself
    When an update comes between what the one before has written and the answer to it
    Then its function was called with what another state wrote before that update began

  Scenario: An update that stopped waiting hands nothing over: those still waiting read the value themselves
    When an update goes ahead of one that stands still, and then another state writes
    Then the update that has waited all the time was called with what was written last

  Scenario: An update that stopped waiting while the previous one was being written does not begin from its value
    When an update loses patience during the write of the one before, and is overtaken once more
    Then it has read both times, and needed 2 attempts

  Scenario: An update that waited for its turn while its state was closed calls no function
    When a state is closed while an update waits for its turn
    Then it has ended with StateClosedError, and its function was not called

  Scenario: An update that hangs in its function does not block others for long
    Given the time limit of an update that waits for its turn is 0.01 seconds
    When an update stands still in its function, and another one of the same key is made
    Then both are in it, and the function was called with both values

  Scenario: An update within an update of the same key overtakes it each time, and waits for no other
    Given the time limit of an update that waits for its turn is 0.01 seconds
    When the function of an update with 2 attempts updates the same key
    Then the update has ended with ContentionError, and that within it was made twice

  Scenario: An update that is cancelled while it waits for its turn blocks no other
    When 3 updates of a key wait for a fourth, and the second of them is cancelled
    Then the others were made, one after the other

  Scenario Outline: An update cancelled <when> its turn has come passes it on
    When of two that wait for a turn the first is cancelled <when> it has come
    Then the turn of the second has come, with <what> left to it, and then it is free

    Examples:
      | when         | what      |
      | long before  | something |
      | right before | nothing   |
      | right after  | nothing   |

  # -- transactions --------------------------------------------------------------------------------

  Scenario: A transaction sees its own writes, and writes all or nothing
    Given a shared state
    When a transaction reads, writes and deletes, and then fails
    Then nothing was written
    When a transaction reads, writes and deletes
    Then everything was written, in one step

  Scenario: A transaction whose values were changed meanwhile writes nothing, and raises
    Given a shared state
    When another writer changes a value that a transaction has read
    Then the transaction ends with ContentionError, and has written nothing

  Scenario: transact retries from the new values, up to the given attempts
    Given a shared state, in which another writer is faster 1000 times
    When transact is called with 4 attempts
    Then ContentionError is raised, which names the transaction
    And its function was called 4 times, and nothing was written

  Scenario Outline: transact takes <kind>, and returns what it returns
    Given a shared state
    When transact is called with <kind> that sets a key
    Then the key is set, and what the function has returned was returned

    Examples:
      | kind                        |
      | a plain function            |
      | an async function           |
      | a generator-based coroutine |

  Scenario: A transaction that has ended refuses further calls
    Given a shared state
    When a transaction has ended
    Then get, set and delete of it raise UsageError

  Scenario: A transaction ends with its block, and there is no other way
    Given a shared state
    Then a transaction has no public methods but get, set and delete

  Scenario Outline: <call> returns a single-use context manager
    Given a shared state
    When the block of state.<call> is entered a second time
    Then UsageError is raised, which says "<call>"
    And the state is open

    Examples:
      | call          |
      | transaction() |
      | lock('l')     |

  Scenario: A transaction without any key need not ask the server
    Given a shared state
    When a transaction does nothing
    Then the server was not asked

  # -- time ----------------------------------------------------------------------------------------

  Scenario Outline: Nothing is kept of a time to live that no longer applies: <afterwards>
    When 1000 keys in memory are written for an hour, and then <afterwards>
    Then <which> are there, and nothing is kept of when they would have been gone

    Examples:
      | afterwards   | which        |
      | forever      | all of them  |
      | for a second | none of them |

  Scenario: Nothing is kept of leases that have ended
    When 1000 items in memory are claimed, all at once, and then completed
    Then nothing is kept of when their leases would have ended, or been renewed

  Scenario: Of a hundred calls of set_if_not_exists one succeeds, and again one after 60 seconds
    Given a shared state
    When a hundred agents set a key if it does not exist, all at once
    Then one of them set it, with a newer version than before
    When 59.9 seconds of the server pass
    And a hundred agents set a key if it does not exist, all at once
    Then none of them set it
    When 0.2 seconds of the server pass
    And a hundred agents set a key if it does not exist, all at once
    Then one of them set it, with a newer version than before

  # -- watching ------------------------------------------------------------------------------------

  Scenario: An observer of a key gets its value at once, then each newer one, without waiting
    Given a shared state
    When an observer watches a key that is 1, and it is set to 2, deleted, and set to 3
    Then the values 1, 2, 3 were seen, with growing versions, in no time

  Scenario: Writes by other processes are seen after the interval
    Given a shared state
    When an observer watches a key every 0.5 seconds that another process sets
    Then it was seen within 0.5 seconds, and never twice

  Scenario Outline: <Who disposes> of a watched key ends the watching
    Given a shared state
    When a watched key is disposed of <by whom>
    Then nothing was seen after that, and no observer is left

    Examples:
      | Who disposes           | by whom                |
      | The loop that disposes | by a task of the loop  |
      | The observer           | by the observer itself |
      | A thread               | by another thread      |
      | Who changes their mind | before it has begun    |
      | Who has had enough     | as the server fails    |

  Scenario Outline: Watching ends with <the notification> when <it ends>
    Given a shared state
    When a key is watched while <it ends>
    Then the observer is told <the notification>, and nothing after it

    Examples:
      | it ends               | the notification      |
      | the state is closed   | completed             |
      | the server goes       | StateUnavailableError |
      | the loop is stopped   | LoopUnavailableError  |
      | it was closed already | StateClosedError      |

  Scenario: Disposing after the loop was closed is harmless
    Given a shared state on a loop of its own
    When a key is watched, the loop is closed, and the watching disposed of
    Then nothing is raised, and nothing was seen after that

  Scenario: An observer that raises is reported to the loop, and affects nothing else
    Given a shared state
    When a key is watched by an observer that raises
    Then the loop's handler was told, and the state goes on

  # -- refused before anything is sent -------------------------------------------------------------

  Scenario Outline: <a value> is not a JSON value, and is refused before it is sent
    Given a shared state
    When <a value> is to be stored there
    Then InvalidTypeError is raised by every method, and the server was not asked

    Examples:
      | a value                         |
      | a set                           |
      | a tuple                         |
      | a datetime                      |
      | bytes                           |
      | a coroutine function            |
      | not a number                    |
      | infinity                        |
      | a mapping with numbers as keys  |
      | a list that contains itself     |
      | a list a hundred thousand deep  |
      | an integer of 5000 digits       |
      | two halves of one character     |
      | an object with a broken repr    |

  Scenario: The deepest list that can be added can be read where less of the stack is left
    Given a shared state
    When the deepest list that is accepted is added to a queue, and its claim is read 50 calls down
    Then it is equal to what was added

  Scenario: Values are copied on their way
    Given a shared state
    When a value is changed after it was set, and after it was got
    Then what is stored is as it was set

  Scenario Outline: <the argument> cannot <cannot be>: it is refused before it is sent
    Given a shared state
    Then state.<call> raises <error>, and the server is not asked

    Examples:
      | the argument | cannot be            | call                               | error                |
      | a key        | be empty             | get("")                            | InvalidArgumentError |
      | a key        | be too long          | get("x" * 513)                     | InvalidArgumentError |
      | a key        | have a NUL           | get("a\0b")                        | InvalidArgumentError |
      | a key        | have half a pair     | get("\ud800")                      | InvalidArgumentError |
      | a key        | be a number          | get(1)                             | InvalidTypeError     |
      | ttl          | be 0                 | set("k", 1, ttl=0)                 | InvalidArgumentError |
      | ttl          | be negative          | set_if_not_exists("k", 1, -1)      | InvalidArgumentError |
      | ttl          | be nan               | set("k", 1, ttl=float("nan"))      | InvalidArgumentError |
      | ttl          | be endless           | set("k", 1, ttl=float("inf"))      | InvalidArgumentError |
      | ttl          | be that large        | set("k", 1, ttl=10**400)           | InvalidArgumentError |
      | ttl          | be a text            | set("k", 1, ttl="60")              | InvalidTypeError     |
      | by           | be a float           | increment_counter("k", 1.0)        | InvalidTypeError     |
      | by           | be a bool            | increment_counter("k", True)       | InvalidTypeError     |
      | by           | exceed 64 bits       | increment_counter("k", 2**63)      | InvalidArgumentError |
      | a version    | be a text            | compare_and_set("k", 1, "1")       | InvalidTypeError     |
      | a token      | be a text            | set("k", 1, token="7")             | InvalidTypeError     |
      | attempts     | be 0                 | safe_update("k", abs, 0)           | InvalidArgumentError |
      | attempts     | be a float           | transact(abs, 1.5)                 | InvalidTypeError     |
      | a function   | be none              | safe_update("k", None)             | InvalidTypeError     |
      | a function   | be a number          | transact(7)                        | InvalidTypeError     |
      | an interval  | be 0                 | watch("k", 0)                      | InvalidArgumentError |

  # -- the server, and the end ---------------------------------------------------------------------

  Scenario Outline: A call is repeated while the server is away, <as far as it is safe>
    Given a shared state whose server is away for <calls> calls, <and>
    When state.<call> is called
    Then that call <ends>

    Examples:
      | as far as it is safe         | calls | and                     | call              | ends                           |
      | if it had no effect          | 5     | which have no effect    | increment_counter | has counted once               |
      | if it can be repeated        | 5     | whose effect is unknown | get               | has returned                   |
      | if it can be repeated        | 3     | which take effect       | add_tasks         | has added once                 |
      | not if it may have an effect | 1     | whose effect is unknown | increment_counter | raises StateUnavailableError   |
      | not if it may have an effect | 1     | which take effect       | increment_counter | raises StateUnavailableError   |
      | and not forever              | 99    | which have no effect    | increment_counter | raises it after 2 to 3 seconds |
      | and not forever              | 99    | whose effect is unknown | get               | raises it after 2 to 3 seconds |

  Scenario Outline: A call is in doubt exactly if any of its attempts is: <attempts>
    Given a shared state whose server is away for 99 calls, <the first>
    When state.add_tasks is called
    Then the error leaves <a or no> doubt whether the call had an effect
    And the server was asked more than once

    Examples:
      | attempts                        | the first                            | a or no |
      | the first has taken effect      | of which the first takes effect      | a       |
      | the first may have taken effect | of whose first the effect is unknown | a       |
      | none can have                   | which have no effect                 | no      |

  Scenario: Every call on a closed state raises StateClosedError
    Given a shared state that was closed
    Then every method of it raises StateClosedError
    And closing it again does no harm

  Scenario: Closing waits for calls in flight, and refuses new ones
    Given a shared state with a call on its way
    When the state is closed
    Then the call has returned before the server was let go of
    And a call that came while it was closing was refused with StateClosedError

  Scenario: A state is used on the loop that opened it
    Given a shared state
    When its get is awaited on another loop
    Then WrongThreadError is raised

  Scenario: A state is closed on the loop that opened it, and by no other
    Given a shared state
    When its aclose is awaited on another loop
    Then WrongThreadError is raised
    And the state is open

  # -- what is gone --------------------------------------------------------------------------------

  Scenario: In memory nothing is kept forever of keys, locks and queues that are gone
    Given memory with a clock of its own
    When a key is written under a token and deleted, another one expires, a lock's holder dies, and a queue is emptied
    Then late writers are refused for a week
    And after a week the store is as if it was new

  Scenario: In memory nothing is kept of purged tasks, though no worker claims from their queue
    Given memory with a clock of its own
    When 100 tasks are added to a queue with a dead task, and purged, ten times
    Then the queue keeps references to fewer than 100 tasks

  Scenario: A deleted key that is counted again keeps its fence for as long as it exists
    Given memory with a clock of its own
    When a key is written under a token and deleted, and counts again
    Then late writers of it are refused after a week, too
