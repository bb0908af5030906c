Feature: A lock has one holder, which learns when it is lost, and can then do no harm

  Time is virtual: the clock of the server and of every process is one, and none of it is spent.

  Scenario Outline: <Under what> at most one of ten agents is inside
    Given ten agents of three processes, <under what>
    When each of them goes in, reads, waits, and writes one more
    Then there were never two inside, and they have counted 10

    Examples:
      | Under what       | under what         |
      | Under state.lock | under state.lock   |

    @tdd_expected_fail
    Examples: naive: looked at, then set
      | Under what             | under what             |
      | Under a flag in a store | under a flag in a store |

  Scenario: A lock is kept for as long as its block runs, however short its time to live
    Given a lock with a time to live of 3 seconds
    When its holder stays inside for 100 seconds
    Then no other caller could have it, and the lease was never lost
    And it is free at once when the block has ended

  Scenario Outline: Locks are kept although a renewal cannot be started once: <error>
    Given a lock with a time to live of 3 seconds
    When two locks are held for 100 seconds, and the loop's task factory raises <error> once for a renewal
    Then no other caller could have either, and neither lease was ever lost

    Examples:
      | error             |
      | LookupError       |
      | KeyboardInterrupt |

  Scenario: What one deadline raises does not affect those after it
    Given a timer with deadlines after 1, 1 and 2 seconds
    When the item of the first one raises
    Then the other two are met in time, and the loop is told of the error

  Scenario: Tokens grow from holder to holder
    Given a lock with a time to live of 3 seconds
    When ten hold it one after the other, in two processes
    Then each token is larger than the one before

  Scenario: A lock whose holder is gone is free after its time to live
    Given a lock with a time to live of 3 seconds
    When the process of its holder ends without a word
    Then it is free 3 seconds later, and not before

  Scenario: A holder that was suspended for too long has lost the lock, gets an error, and cannot write
    Given a lock with a time to live of 3 seconds
    When its holder stands still for 10 seconds, and another one takes it
    Then lease.lost says so, and lease.check() raises LeaseLostError
    And a write with the old token raises StaleTokenError, and changes nothing
    And LeaseLostError is raised

  @tdd_expected_fail
  Scenario: Without a token, a holder that was suspended for too long does no harm
    Given a lock with a time to live of 3 seconds
    When its holder stands still for 10 seconds, and then writes without a token
    Then what the other one has written is still there

  Scenario: After its block a lease is lost, and check() raises
    Given a lock with a time to live of 3 seconds
    When its block ends in time, and its lease is looked at
    Then lease.lost says so, and lease.check() raises LeaseLostError
    And the lease of a block that ends with an error says so as well

  Scenario: An error in the block propagates, with a note that the lock was lost as well
    Given a lock with a time to live of 3 seconds
    When its holder stands still for 10 seconds, another one takes it, and the block raises KeyError
    Then KeyError is raised, with a note that says "was lost"

  Scenario: A server that is away for less than the lease costs nothing
    Given a lock with a time to live of 3 seconds
    When the server is away for 1.5 seconds while it is held
    Then no other caller could have it, and the lease was never lost

  Scenario: A server that is away for longer than the lease may have granted the lock to another holder
    Given a lock with a time to live of 3 seconds
    When the server is away for 4 seconds while it is held
    Then the lease was lost after 3 seconds

  Scenario: A claim, too, fences writes
    Given a shared state
    When an item is claimed, expires, and is claimed by another, who writes with its claim
    Then StaleTokenError is raised

  # -- waiting -------------------------------------------------------------------------------------

  Scenario Outline: Waiting <how long> for a lock that is held raises LockTimeoutError, a TimeoutError
    Given a lock with a time to live of 3 seconds
    When it is held, and another <waiter> waits <how long> for it
    Then LockTimeoutError is raised after <how long>

    Examples:
      | waiter  | how long    |
      | process | 0 seconds   |
      | process | 2.5 seconds |
      | task    | 0 seconds   |
      | task    | 2.5 seconds |

  Scenario: Tasks of one process get the lock in the order of their calls, at once
    Given a lock with a time to live of 3 seconds
    When five tasks of a process ask for it, and each holds it for a second
    Then they had it in the order of asking, with no time between them

  Scenario: Another process gets the lock soon after it is free
    Given a lock with a time to live of 3 seconds
    When another process waits for it, and it is held for 10 seconds
    Then it had it within 0.3 seconds after that

  Scenario: Of two waiters in one process, the second does not wait for the first one's poll
    Given a lock with a time to live of 3 seconds
    When it is held, one task waits forever, and another waits 2.5 seconds
    Then LockTimeoutError is raised after 2.5 seconds

  Scenario Outline: A call cancelled <while> holds nothing
    Given a lock with a time to live of 3 seconds
    When a task that takes it is cancelled <while>
    Then it is free at once when the block has ended

    Examples:
      | while                                 |
      | while the server is giving it         |
      | twice while the server is giving it   |
      | while it is given, and given back     |
      | while it waits for its turn           |
      | while another process has it          |
      | inside                                |
      | while it gives it back                |
      | three times while it gives it back    |

  Scenario: Waiting for a lock raises when the state is closed
    Given a lock with a time to live of 3 seconds
    When it is held, and the state is closed in which a task waits for it
    Then StateClosedError is raised at once

  Scenario: A lock or an item granted while the state is closing is released, and the call raises
    Given a lock with a time to live of 3 seconds
    When the state is closed while the server gives a lock and an item
    Then both who asked get StateClosedError, and another process has both within 3 seconds

  Scenario Outline: A lock whose <argument> <cannot be> is refused
    Given a shared state
    Then state.<call> raises <error>, and the server is not asked

    Examples:
      | argument | cannot be    | call                       | error                |
      | key      | is empty     | lock("")                   | InvalidArgumentError |
      | key      | is not text  | lock(None)                 | InvalidTypeError     |
      | ttl      | is 0         | lock("l", 0)               | InvalidArgumentError |
      | ttl      | is endless   | lock("l", float("inf"))    | InvalidArgumentError |
      | wait     | is negative  | lock("l", wait=-1)         | InvalidArgumentError |
      | wait     | is not a number | lock("l", wait=float("nan")) | InvalidArgumentError |
      | wait     | is a text    | lock("l", wait="1")        | InvalidTypeError     |
