Feature: Work is added once, claimed by one worker at a time, and completed exactly once

  Time is virtual: the clock of the server and of every process is one, and none of it is spent.

  # -- many at once --------------------------------------------------------------------------------

  Scenario Outline: Of <a way of claiming> eight agents never get the same item
    Given 40 items in <a way of claiming>
    When eight agents take items until none is left
    Then each item was worked on once

    Examples:
      | a way of claiming |
      | a queue           |

    @tdd_expected_fail
    Examples: naive: two agents claim the same item
      | a way of claiming |
      | a list            |

  Scenario Outline: <A way of adding> loses no item, and adds none twice, though agents add together
    Given <a way of adding> that five agents share
    When each of them adds the same three items and two of its own, all at once
    Then there are 13 items

    Examples:
      | A way of adding | a way of adding |
      | A queue         | a queue         |

    @tdd_expected_fail
    Examples: naive: the list is written back as it was read, and more
      | A way of adding | a way of adding |
      | A shared list   | a shared list   |

  # -- workers that go -----------------------------------------------------------------------------

  Scenario Outline: The item of a worker that dies comes back from <a queue>
    Given an item in <a queue>
    When the worker dies that has taken it
    Then another one gets it, 30 seconds later at most

    Examples:
      | a queue |
      | a queue |

    @tdd_expected_fail
    Examples: naive: LPOP takes the item with the worker
      | a queue                |
      | a list that is popped  |

  Scenario Outline: <A queue> has one result of an item that a slow and a quick worker have processed
    Given an item in <a queue>
    When its worker stands still past its lease, another one works on it, and both complete it
    Then there is one result, that of the second, and the first was told

    Examples:
      | A queue | a queue |

    @tdd_expected_fail
    Examples: naive: any worker's result is accepted
      | A queue              | a queue              |
      | A queue with a timer | a queue with a timer |

  Scenario: A claim is kept for as long as it is open, however short its lease
    Given an item in a queue
    When a worker with a lease of 3 seconds works on it for 100 seconds
    Then no other caller could have it, and it was complete in its first attempt

  Scenario: A claim that was dropped without being ended is no longer renewed
    Given an item in a queue
    When a worker with a lease of 3 seconds forgets its claim
    Then another one gets it, 30 seconds later at most

  Scenario: A claim may be given a longer lease
    Given an item in a queue
    When a worker with a lease of 3 seconds extends it to 60, and stands still for 50
    Then no other caller could have it, and it was complete in its first attempt

  Scenario Outline: After a claim is lost, <method> raises, and so does every later method
    Given an item in a queue
    When a worker has lost it to another one, and calls <method>
    Then LeaseLostError is raised by each of the 2 calls
    And the other one's claim still holds

    Examples:
      | method   |
      | complete |
      | fail     |
      | release  |
      | extend   |

  Scenario Outline: An exception whose str() raises fails its attempt like any other, <where>
    Given an item in a queue
    When its only attempt fails <where> with an exception whose __str__ raises RuntimeError
    Then the exception is what came out, and the item is a dead letter that names it and says so

    Examples:
      | where            |
      | in its block     |
      | as it says so    |

  Scenario: An item that cannot be decoded fails its own attempt, not that of the item before it
    Given an item in a queue
    When another program adds one that is nested 100,000 deep, and both are claimed in one step
    Then the first one is complete, and the second one waits for its next attempt

  Scenario: A slow worker whose item was not claimed again completes it all the same
    Given an item in a queue
    When its worker stands still past its lease, and completes it
    Then there is one result, and no error was raised

  Scenario: While the server is away a claim stays open, and can be completed when it is back
    Given an item in a queue
    When the server goes, and its worker completes it in vain, and again 10 seconds later
    Then there is one result, and no error was raised

  Scenario: That leases cannot be renewed is reported once in each outage, however many there are
    Given an item in a queue
    When 20 claims and locks are held while the server is away for a minute, two times
    Then 2 warnings were logged, which say "leases cannot be renewed"

  @counted_references
  Scenario Outline: A claim that is dropped after an error is renewed no more, without the cyclic collector: <call>
    When a claim is dropped after <call> has raised an error, as the server was away
    Then nothing refers to the claim

    Examples:
      | call           |
      | complete       |
      | fail           |
      | release        |
      | extend         |
      | its block      |
      | complete_tasks |
      | a lock         |

  Scenario: A claim that outlives its state is refused, and its heartbeat ends
    Given an item in a queue
    When its worker completes it after its state was closed
    Then it is told StateClosedError, and another one gets it, 30 seconds later at most

  Scenario: The heartbeat of a claim that cannot be completed while its state is closed ends
    Given an item in a queue
    When the server goes while its worker completes it, and the state is closed meanwhile
    Then it is told StateUnavailableError, and another one gets it, 30 seconds later at most

  Scenario: A claim is ended on the loop of its state
    Given an item in a queue
    When its worker completes it on another loop
    Then it is told WrongThreadError, and no other worker gets it before it is complete

  Scenario: Extending a claim while it is completed does no harm
    Given an item in a queue
    When one task extends its claim, and another one completes it meanwhile
    Then there is one result, and no error was raised

  Scenario: A renewal that takes long is not joined by another one
    Given an item in a queue
    When a heartbeat of its claim takes 5 seconds, and the claim is extended meanwhile
    Then the server has seen one renewal at a time, but for the extension

  Scenario: A claim whose end was cancelled is renewed again, however long the last renewal takes to end
    Given an item in a queue
    When its completion is cancelled while a renewal ends, which takes 1 second
    Then the claim is open, was renewed again in time, and can be completed

  Scenario: An item given back by a cancelled claim goes at once to a worker that waits in this process
    Given an item in a queue
    When a task is cancelled while the server gives it the item, and another one waits for an item
    Then the other one has it, in attempt 1, as soon as it was given back

  Scenario: An item claimed for a cancelled call is given back though the server is gone for a while
    Given an item in a queue
    When a task is cancelled while the server gives it the item, and then is gone for a while
    Then the item waits again, in attempt 1

  # -- attempts ------------------------------------------------------------------------------------

  Scenario: A failed item is retried when it is due, until its attempts are used up
    Given an item in a queue, with 3 attempts
    When each attempt fails with an error, and asks for a retry in 5 seconds
    Then there were 3 attempts, 5 seconds apart
    And the dead letter tells the item, the attempts, the worker and the error
    When the dead letters are put back
    Then it is attempt 1 again

  Scenario: A failed item waits for its next attempt as its queue was declared, for longer each time
    Given an item in a queue, with 5 attempts
    And its pauses are declared: 2 seconds, three times as long each time, 10 at most
    When each attempt fails with an error
    Then the pauses were 2, 6, 10 and 10 seconds

  Scenario: A pause that is given for one attempt precedes the declared one
    Given an item in a queue, with 3 attempts
    And its pauses are declared: 2 seconds, three times as long each time, 10 at most
    When each attempt fails with an error, and asks for a retry in 5 seconds
    Then there were 3 attempts, 5 seconds apart

  Scenario: Pauses are partly random, never longer than declared, and pauses that cannot be are refused
    Then 1,000 pauses after each attempt lie between half of it and all of it
    And a Backoff of no length, of a factor below 1, or with more jitter than 1 is refused

  Scenario: An item that is failed finally gets no further attempt
    Given an item in a queue, with 3 attempts
    When its first attempt fails for good
    Then it is a dead letter, after 1 attempt

  Scenario: Workers that die use up attempts, too
    Given an item in a queue, with 3 attempts
    When 3 workers die that have claimed it
    Then it is a dead letter, after 3 attempts, whose error tells that the lease expired

  Scenario Outline: A block around a claim <ends it> when <it ends>
    Given an item in a queue
    When a block around its claim <it ends>
    Then the item <is afterwards>

    Examples:
      | ends it       | it ends                   | is afterwards                       |
      | completes it  | ends                      | is complete                         |
      | fails it      | raises an error           | waits for its attempt 2             |
      | releases it   | is cancelled              | waits for its attempt 1             |
      | leaves it     | has released it           | waits for its attempt 1             |
      | leaves it     | has completed it          | is complete                         |

  Scenario Outline: An error in the block propagates, with a note that the claim could not be ended, <as>
    Given an item in a queue
    When a block around its claim raises an error, <as>
    Then KeyError is raised, with a note that says "claim"

    Examples:
      | as                              |
      | after the item was lost         |
      | which the server does not take  |

  Scenario: Of two tasks that end a claim at once, one succeeds, and the other gets an error
    Given an item in a queue
    When two tasks complete the same claim at once
    Then one of them gets UsageError, and the item is complete

  Scenario Outline: Completing a claim that is cancelled <once or twice> leaves it complete, or open
    Given an item in a queue
    When its worker is cancelled <once or twice> while the server completes it
    Then it is complete, or can be completed

    Examples:
      | once or twice |
      | once          |
      | twice         |

  Scenario: A claim whose completion is cancelled before its first step is open, and can be completed
    Given an item in a queue
    When all tasks of a loop that starts none eagerly are cancelled as its worker completes it
    Then the claim is open, and can be completed

  # -- order, waiting ------------------------------------------------------------------------------

  Scenario: Priorities, due times and threads decide what is claimed next
    Given a queue with items of all kinds
    When a worker takes what it can get, second by second
    Then the items came in this order: urgent, first, a1, second, a2, late

  Scenario Outline: A waiting worker gets an item <when> it is <there>
    Given an empty queue
    When a worker waits 20 seconds, and 10 seconds later an item <comes>
    Then it was claimed <when> it is there

    Examples:
      | when                | there               | comes                                       |
      | at once             | added here          | is added by the same process                |
      | within 0.3 seconds  | added elsewhere     | is added by another process                 |
      | within 0.3 seconds  | due                 | that was delayed falls due                  |
      | at once             | put back here       | is put back by the same process             |
      | at once             | next in its thread  | follows one that the same process completes |

  Scenario: A completed item that no other waited for wakes no worker
    Given an empty queue
    When an item is completed while a worker waits for another one
    Then the server was called once for that

  Scenario: A worker gets None if there is no item until its timeout
    Given an empty queue
    When a worker waits 20 seconds
    Then it got None after 20 seconds

  Scenario: Waiting for an item raises when the state is closed
    Given an empty queue
    When a worker waits forever, and the state is closed
    Then StateClosedError is raised at once

  # -- what is known -------------------------------------------------------------------------------

  Scenario: A task is not younger than new, though the clock of the server was set back
    Given an item in a queue
    When the clock of the server is set back by an hour
    Then the age of the task is 0

  Scenario: Statistics, results and claims show the state of a queue
    Given a queue with items in every state
    Then its stats, its results and a claim tell so

  Scenario Outline: Other tasks of the loop run meanwhile, however much there is to <do>
    Given a queue with 1,200 dead tasks and 1,200 completed ones
    When a task counts its turns while state.<call> is carried out
    Then he has had 2 at least

    Examples:
      | do                   | call                          |
      | read of the dead     | dead_letters("q")             |
      | find among the dead  | dead_letters("q", keys=keys)  |
      | read of the results  | results("q")                  |
      | find among results   | results("q", keys=keys)       |
      | put back             | requeue("q")                  |
      | find and put back    | requeue("q", ids)             |
      | forget               | purge("q")                    |

  Scenario Outline: <call> is refused before it is sent
    Given a shared state
    Then state.<call> raises <error>, and the server is not asked

    Examples:
      | call                                         | error                |
      | add_tasks("q", "text")                       | InvalidTypeError     |
      | add_tasks("q", {"a": 1})                     | InvalidTypeError     |
      | add_tasks("q", 1)                            | InvalidTypeError     |
      | add_tasks("", [])                            | InvalidArgumentError |
      | add_tasks("q", [Task(1, key="")])            | InvalidArgumentError |
      | add_tasks("q", [Task(1, priority=2**31)])    | InvalidArgumentError |
      | add_tasks("q", [Task(1, priority=0.5)])      | InvalidTypeError     |
      | add_tasks("q", [Task(1, delay=-1)])          | InvalidArgumentError |
      | add_tasks("q", [Task(1, thread_id=7)])       | InvalidTypeError     |
      | add_tasks("q", [1], max_attempts=0)          | InvalidArgumentError |
      | add_tasks("q", range(10_001))                | InvalidArgumentError |
      | add_tasks("q", iter(int, 1))                 | InvalidArgumentError |
      | complete_tasks(None)                         | InvalidTypeError     |
      | complete_tasks("ab")                         | InvalidTypeError     |
      | complete_tasks([None])                       | InvalidTypeError     |
      | complete_tasks(["ab"])                       | InvalidTypeError     |
      | complete_tasks([(1, 2, 3)])                  | InvalidTypeError     |
      | complete_tasks(iter(int, 1))                 | InvalidTypeError     |
      | claim_task("q", lease=0)                     | InvalidArgumentError |
      | claim_task("q", worker=7)                    | InvalidTypeError     |
      | claim_task("q", wait=-1)                     | InvalidArgumentError |
      | results("q", ids=["a"], keys=["b"])          | InvalidArgumentError |
      | results("q", ids="a")                        | InvalidTypeError     |
      | requeue("q", [7])                            | InvalidTypeError     |
      | purge("q", ["done"])                         | InvalidArgumentError |
      | purge("q", "dead")                           | InvalidTypeError     |
      | purge("q", 5)                                | InvalidTypeError     |
      | purge("q", None)                             | InvalidTypeError     |
      | requeue("q", 5)                              | InvalidTypeError     |
      | results("q", ids=5)                          | InvalidTypeError     |
      | results("q", keys=5)                         | InvalidTypeError     |
      | dead_letters("q", keys=5)                    | InvalidTypeError     |

  Scenario: Adding nothing need not ask the server
    Given a shared state
    When no tasks are added
    Then the server was not asked
