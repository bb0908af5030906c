@once
Feature: The Redis backend takes each step once, whatever happens to the connection or the server

  What holds for every backend is in the conformance suite. Here is what only Redis and Valkey do:
  scripts that a server forgets, connections that break in the middle, nodes of a cluster.

  # -- connections ---------------------------------------------------------------------------------

  @valkey
  Scenario Outline: <A write> <that meets trouble> takes effect once, and is answered normally
    Given a Valkey server
    When <a write> is made of which <trouble>
    Then it was answered as it is without trouble
    And everything is as it is without trouble

    Examples: carried out, but the client cannot know
      | A write           | a write           | that meets trouble   | trouble            |
      | An increment      | an increment      | whose answer is lost | the answer is lost |
      | A set             | a set             | whose answer is lost | the answer is lost |
      | A compare-and-set | a compare-and-set | whose answer is lost | the answer is lost |
      | A deletion        | a deletion        | whose answer is lost | the answer is lost |
      | A transaction     | a transaction     | whose answer is lost | the answer is lost |
      | A lock's release  | a lock's release  | whose answer is lost | the answer is lost |
      | A claim           | a claim           | whose answer is lost | the answer is lost |
      | A failure         | a failure         | whose answer is lost | the answer is lost |
      | A task's release  | a task's release  | whose answer is lost | the answer is lost |
      | A requeue         | a requeue         | whose answer is lost | the answer is lost |
      | A purge           | a purge           | whose answer is lost | the answer is lost |

    Examples: it arrives after it was given up and sent again
      | A write          | a write          | that meets trouble | trouble             |
      | An increment     | an increment     | that is overtaken  | the request is late |
      | A set            | a set            | that is overtaken  | the request is late |
      | A transaction    | a transaction    | that is overtaken  | the request is late |
      | A lock's release | a lock's release | that is overtaken  | the request is late |
      | A claim          | a claim          | that is overtaken  | the request is late |
      | A failure        | a failure        | that is overtaken  | the request is late |
      | A task's release | a task's release | that is overtaken  | the request is late |
      | A requeue        | a requeue        | that is overtaken  | the request is late |

    Examples: never carried out, but the client cannot know
      | A write       | a write       | that meets trouble | trouble             |
      | An increment  | an increment  | that gets lost     | the request is lost |
      | A transaction | a transaction | that gets lost     | the request is lost |
      | A claim       | a claim       | that gets lost     | the request is lost |

  @valkey
  Scenario: As many tasks as a call may have, more than the stack of Lua has room for, are added in one call
    Given a Valkey server
    When 10000 tasks with keys are added in one call, and claimed and completed 500 at a time
    Then each of the 10000 was completed once

  @valkey
  Scenario Outline: A counter <of whom> that is incremented once is 1, though <trouble>
    Given a Valkey server
    When <who> increments a counter, and <trouble>
    Then the counter is 1

    Examples:
      | of whom        | who         | trouble             |
      | of the backend | the backend | the answer is lost  |
      | of the backend | the backend | the request is late |

    @tdd_expected_fail
    Examples: naive: a client that sends again what was not answered counts twice
      | of whom             | who                   | trouble             |
      | of a client by hand | a client that repeats | the answer is lost  |
      | of a client by hand | a client that repeats | the request is late |

  @valkey
  Scenario Outline: A value <of whom> that is sent again does not undo a concurrent write
    Given a Valkey server
    When <who> sets a value, its answer is lost, and another client sets it before it is sent again
    Then the value is that of the other client

    Examples:
      | of whom        | who         |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: it is set again
      | of whom             | who                   |
      | of a client by hand | a client that repeats |

  @valkey
  Scenario Outline: After a call <of whom> was cancelled <when>, the others get their own answers
    Given a Valkey server
    When <who> cancels an increment by 100 while <it waits>, and makes 20 others at once
    Then each of the others was answered with a number of its own, up to what the counter is
    And 100 was added once, or not at all

    Examples:
      | of whom        | who         | when                    | it waits          |
      | of the backend | the backend | before it arrived       | the request waits |
      | of the backend | the backend | when it was carried out | the answer waits  |

    @tdd_expected_fail
    Examples: naive: the connection is kept, and with it the unread answer
      | of whom           | who            | when                    | it waits          |
      | of one connection | one connection | before it arrived       | the request waits |
      | of one connection | one connection | when it was carried out | the answer waits  |

  @valkey
  Scenario: Any number of calls shares the limited connections
    Given a Valkey server
    When 300 increments are made at once over 3 connections
    Then the counter is 300
    And there were never more than 3 connections

  @valkey
  Scenario: A backend whose closing is cancelled at any step leaves no connection open
    Given a Valkey server
    When a backend is closed, which is cancelled after each of its steps in turn
    Then closing was cancelled, and no connection was ever left open

  # -- steps ---------------------------------------------------------------------------------------

  @valkey
  Scenario Outline: Two increments <of whom> at the same moment both count
    Given a Valkey server
    When <who> increments a counter twice at the same moment
    Then the counter is 2

    Examples:
      | of whom        | who         |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: get, add, set
      | of whom           | who            |
      | of a get-then-set | a get-then-set |

  @valkey
  Scenario: A long purge works in steps, and other calls proceed in between
    Given a Valkey server
    When 2500 tasks are purged, and another client reads them meanwhile
    Then some were left then, and 2500 are forgotten in the end

  @valkey
  Scenario: A cancelled long purge has deleted some, and the next one deletes the rest
    Given a Valkey server
    When 2500 tasks are purged, which is cancelled meanwhile
    Then some were left then, and the next one has forgotten those

  Scenario: A long purge that fails in the middle is in doubt
    Given a Valkey server of its own
    When 2500 tasks are purged, and the server refuses all writes from then on
    Then the error leaves a doubt whether the call had an effect

  @valkey
  Scenario Outline: A task <of whom> whose worker is gone comes back
    Given a Valkey server
    When a worker claims a task from <whom>, and is gone
    Then another worker can claim it

    Examples:
      | of whom        | whom        |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: LPOP
      | of whom   | whom   |
      | of a list | a list |

  # -- what has ended ------------------------------------------------------------------------------

  Scenario: Nothing is kept of what has ended, except counters and each connection's last request
    Given a Valkey server of its own
    And fences are kept for 0.05 seconds
    When keys are written under tokens and are deleted or expire, locks and queues are used, and time passes
    Then the server has nothing but the counter, the version and sequences

  @valkey
  Scenario Outline: A fence <that> is there for as long as its key, and for some time after
    Given a Valkey server
    And fences are kept for 0.05 seconds
    When a key is written under a token, and <then>, and more time passes than that
    Then a write under an older token is <refused>

    Examples:
      | that                                   | then                                          | refused     |
      | of a key that stays                    | it stays                                      | refused     |
      | of a key that is written without one   | it is written without a token                 | refused     |
      | of a key that is counted up            | it is counted up without a token              | refused     |
      | of a key that is made again            | it is deleted, and made again without a token | refused     |
      | of a key that has got a time to live   | it gets a long time to live                   | refused     |
      | of a key that is deleted               | it is deleted                                 | not refused |
      | of a key whose time is up              | it gets a time to live of a millisecond       | not refused |

  # -- the script cache ----------------------------------------------------------------------------

  Scenario: A server that has lost its scripts is sent them again
    Given a Valkey server of its own
    When 8 tasks count to 50 each, and each flushes the script cache now and then
    Then the counter is 400
    And a script was sent as a whole more than once

  # -- servers -------------------------------------------------------------------------------------

  Scenario: Counters are exact though the server is killed and started again
    Given a Valkey server of its own that writes everything to its disk
    When 8 tasks count while the server is killed and started again
    Then each increment that was answered is in the counter, and no other

  Scenario: Claims and locks outlive the server that gave them
    Given a Valkey server of its own that writes everything to its disk
    When a task is claimed and a lock taken, and the server is killed and started again
    Then the lock is still held, and the task is completed under its token
    And whatever is drawn from the counter now is larger than before

  Scenario Outline: A fencing token <of whom> is larger than those from before the server lost everything
    Given a Valkey server of its own
    When a lock is taken from <whom>, the server loses everything, and it is taken again
    Then the second token is larger

    Examples:
      | of whom        | whom        |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: INCR begins anew
      | of whom   | whom   |
      | of a list | a list |

  Scenario: A silent server delays calls for a limited time, and is used again when it answers
    Given a Valkey server of its own
    When the server is paused, and 9 increments are made over 2 connections
    Then each of them ended with a StateUnavailableError, 2 of them in doubt
    And those in doubt say that no answer came within 2 seconds
    And the next increment counts, and none of those in doubt has counted twice

  Scenario: A server that is busy with an endless script is waited for
    Given a Valkey server of its own
    When an increment is put off by an endless script, and the script is killed
    Then the counter is 1

  Scenario: If the server is gone, a call raises, without doubt about its effect
    Given a Valkey server of its own
    When the server ends, and 3 increments are made one after the other
    Then the first may have, but from the second on none has had an effect, as they say themselves

  Scenario: A server without memory refuses a call, which has no effect
    Given a Valkey server of its own
    When the server has no memory left, and an increment is made
    Then the error leaves no doubt whether the call had an effect
    And the server has no key but that of the version

  # -- what a server must be -----------------------------------------------------------------------

  Scenario Outline: A server that evicts keys by <policy> when its memory is full is refused at opening
    Given a Valkey server of its own whose maxmemory-policy is <policy>
    When the state at redis://127.0.0.1:{port} is opened
    Then InvalidArgumentError is raised, which says "maxmemory-policy <policy>"
    And the error says "set maxmemory-policy noeviction"
    And the server has no key

    Examples:
      | policy          |
      | allkeys-lru     |
      | allkeys-lfu     |
      | allkeys-random  |
      | volatile-lru    |
      | volatile-lfu    |
      | volatile-random |
      | volatile-ttl    |

  @tdd_expected_fail
  Scenario: Plain Redis: a counter on a server that evicts keys is gone without an error
    Given a Valkey server of its own whose maxmemory-policy is allkeys-lru
    When a client counts to 1 there, and fills its memory with other keys
    Then the counter is 1

  Scenario: A user without permission to read the eviction policy can open a state, with a warning
    Given a Valkey server of its own with a user who may do nothing dangerous
    When the state at redis://guest:sesame@127.0.0.1:{port} is opened
    Then it works
    And a warning has said "make sure that it is noeviction"

  Scenario: A user without permission to run scripts is refused at opening
    Given a Valkey server of its own with a user who may run no scripts
    When the state at redis://guest:sesame@127.0.0.1:{port} is opened
    Then InvalidArgumentError is raised, which says "no permissions"

  @valkey
  Scenario: A namespace of a future version is refused, with its version
    Given a Valkey server
    And a namespace there is of a version to come
    When a state is opened in that namespace
    Then InvalidArgumentError is raised, which says "or a newer release"
    And the error says "has version 3"
    And the error says "needs version 2"

  Scenario Outline: <A value> that the server would not take is refused, and the next call is answered
    Given a Valkey server of its own that takes values of 1 MB
    When <a value> is sent to it that is larger than that
    Then InvalidArgumentError is raised, which says "proto-max-bulk-len"
    And the counter is 1

    Examples:
      | A value         | a value         |
      | A result        | a result        |
      | A list of tasks | a list of tasks |

  Scenario Outline: Opening a state <somewhere> fails with <an error>, and shows no password
    Given a Valkey server of its own whose password is "abracadabra"
    When the state at <url> is opened
    Then <an error> is raised
    And neither the error nor its causes show abracadabra, sesame

    Examples:
      | somewhere                 | url                                                   | an error              |
      | with a wrong password     | redis://:sesame@127.0.0.1:{port}                      | InvalidArgumentError  |
      | without a password        | redis://127.0.0.1:{port}                              | InvalidArgumentError  |
      | where no server listens   | valkey://:sesame@127.0.0.1:1                          | StateUnavailableError |
      | at no such socket         | unix:///nowhere/valkey.sock                           | StateUnavailableError |
      | in a database that is not | redis://:abracadabra@127.0.0.1:{port}/77              | InvalidArgumentError  |
      | in a database with a name | redis://:abracadabra@127.0.0.1:{port}/jobs            | InvalidArgumentError  |
      | in a database of another  | redis://:abracadabra@127.0.0.1:{port}/0/1             | InvalidArgumentError  |
      | with something behind it  | redis://:abracadabra@127.0.0.1:{port}/0#jobs          | InvalidArgumentError  |
      | with an unknown option    | redis://:sesame@127.0.0.1:{port}?colour=blue          | InvalidArgumentError  |
      | with a wrong option       | redis://:sesame@127.0.0.1:{port}?socket_timeout=long  | InvalidArgumentError  |
      | without any time          | redis://:sesame@127.0.0.1:{port}?socket_timeout=0     | InvalidArgumentError  |
      | with too many connections | redis://:sesame@127.0.0.1:{port}?max_connections=9999 | InvalidArgumentError  |
      | by an unknown way         | redis+carrier://pigeon                                | InvalidArgumentError  |

  Scenario: A server that quotes an unknown command does not reveal a password
    Given a Valkey server of its own that knows no AUTH
    When the state at redis://guest:sesame@127.0.0.1:{port} is opened
    Then InvalidArgumentError is raised, which says "unknown command"
    And neither the error nor its causes show abracadabra, sesame

  Scenario Outline: A URL with a misplaced password shows nothing of it: <url>
    When a state is opened at the Redis URL <url>
    Then InvalidArgumentError is raised
    And neither the error nor its causes show SEC, RET, 77

    Examples:
      | url                                                       |
      | redis://:SEC@RET@127.0.0.1:1                              |
      | redis://:SEC/RET@127.0.0.1:1                              |
      | redis://:SEC?RET@127.0.0.1:1                              |
      | redis://:SEC#RET@127.0.0.1:1                              |
      | redis://:77?RET@127.0.0.1:1                               |
      | redis://:77?RET=SEC@127.0.0.1:1                           |
      | redis://:SECRET                                           |
      | redis://user:SECRET                                       |
      | redis://user:SECRET@/5/6                                  |
      | redis:SECRET@127.0.0.1:1                                  |
      | redis::SECRET@127.0.0.1:1/0                               |
      | redis:/:SECRET@127.0.0.1:1                                |
      | redis:                                                    |
      | redis://[SECRET]@127.0.0.1:1/SECRET                       |
      | redis://[SECRET@127.0.0.1:1                               |
      | redis://127.0.0.1:1/0?password=SEC&RET=1                  |
      | redis://127.0.0.1:1/0?socket_timeout=SECRET               |
      | redis://127.0.0.1:1/0?socket_timeout=inf                  |
      | unix://:SEC/RET@/nowhere.sock                             |
      | unix:SECRET@/nowhere.sock                                 |
      | unix://:SEC;RET/nowhere.sock                              |

  Scenario Outline: The error for an absent server shows no password: <url>
    When a state is opened at the Redis URL <url>
    Then StateUnavailableError is raised
    And neither the error nor its causes show SEC, RET, 77

    Examples:
      | url                                     |
      | redis://:SECRET@:1                      |
      | redis://127.0.0.1:1/0?password=SECRET   |
      | redis+sentinel://:SECRET@127.0.0.1:1/m |
      | redis+sentinel://127.0.0.1:1/m?sentinel_password=SECRET |
      | redis://127.0.0.1:1/0?password=SEC@RET  |
      | unix:///nowhere.sock?password=SECRET    |

  Scenario Outline: A state is opened <how>
    Given a Valkey server of its own whose password is "abracadabra"
    When the state at <url> is opened
    Then it works

    Examples:
      | how             | url                                              |
      | with a password | redis://:abracadabra@127.0.0.1:{port}            |
      | as Valkey       | valkey://:abracadabra@127.0.0.1:{port}/3         |
      | with a last /   | redis://:abracadabra@127.0.0.1:{port}/3/         |
      | over a socket   | unix://:abracadabra@{socket}?db=2                |
      | over RESP3      | redis://:abracadabra@127.0.0.1:{port}?protocol=3 |

  # -- clusters ------------------------------------------------------------------------------------

  Scenario: On a cluster, a state is found from any node, and keeps counting while it moves to another
    Given a cluster of two Valkey servers
    When a state is opened at the node that does not have it, and counts while it moves there
    Then each increment that was answered is in the counter, and no other
    And all keys of the state are in one slot, at the other node
