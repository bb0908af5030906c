@once
Feature: The SQL backends keep the contract, whatever happens to the file, the server or a connection

  What holds for every backend is in the conformance suite. Here is what only databases do: tables
  that several processes make at once, files that are locked, moved or damaged, transactions that
  wait for each other, servers that come back.

  # -- opening -------------------------------------------------------------------------------------

  Scenario Outline: Processes that open an empty <database> at the same moment all find its tables
    Given an empty store in <backend>
    When 4 processes open it at the same moment, and count to 25 each
    Then none of them complained
    And the state has counted 100

    Examples:
      | database | backend |
      | file     | SQLite  |

    @postgresql
    Examples:
      | database            | backend    |
      | PostgreSQL database | PostgreSQL |

  Scenario Outline: A state <somewhere> cannot be opened, and the error gives the reason, but no password
    When a state is opened at <url>
    Then <an error> is raised, which says "<why>"
    And neither the error nor its causes show sesame

    Examples: a URL that cannot be
      | somewhere                   | url                                             | an error                | why                |
      | in SQLite's own memory      | sqlite:///:memory:                              | InvalidArgumentError    | memory:            |
      | in no file at all           | sqlite://                                       | InvalidArgumentError    | sqlite:///FILE     |
      | in a file with options      | sqlite:///state.db?mode=ro                      | InvalidArgumentError    | sqlite:///FILE     |
      | in a file with a ?          | sqlite:///state?.db                             | InvalidArgumentError    | %3F                |
      | in a device                 | sqlite:////dev/null                             | InvalidArgumentError    | not a regular file |
      | in a file of a host         | sqlite://me:sesame@host/state.db                | InvalidArgumentError    | sqlite:///FILE     |
      | over a driver for SQLite    | sqlite+aiosqlite:///state.db                    | InvalidArgumentError    | sqlite:///         |
      | in a folder                 | sqlite:////                                     | InvalidArgumentError    | cannot be opened   |
      | in a folder that is missing | sqlite:////no/such/folder/state.db              | InvalidArgumentError    | cannot be opened   |
      | over another driver         | postgresql+asyncpg://me:sesame@/db              | InvalidArgumentError    | postgresql+psycopg |
      | with a wrong number         | postgresql://me:sesame@/db?connect_timeout=soon | InvalidArgumentError    | connect_timeout    |
      | with a wrong escape         | postgresql://me:sesame%zz@host/db               | InvalidArgumentError    | cannot be read     |
      | with a wrong option         | postgresql://me:sesame@/db?sslmode=soso         | InvalidArgumentError    | sslmode            |
      | with an unknown option      | postgresql://me:sesame@/db?colour=green         | InvalidArgumentError    | colour             |
      | with no connections         | postgresql://me:sesame@/db?pool_size=0          | InvalidArgumentError    | pool_size          |
      | with endless patience       | postgresql://me:sesame@/db?command_timeout=inf  | InvalidArgumentError    | command_timeout    |

    Examples: no answer
      | somewhere               | url                                      | an error                | why             |
      | where no server listens | postgresql://me:sesame@127.0.0.1:1/db    | StateUnavailableError   | does not answer |
      | at a missing socket     | postgresql://me:sesame@/db?host=/nowhere | StateUnavailableError   | does not answer |

  @postgresql
  Scenario Outline: A state <somewhere> on a running server is refused, without retries
    Given an empty store in PostgreSQL
    When a state is opened at {url}<more>
    Then InvalidArgumentError is raised, which says "<why>"

    Examples:
      | somewhere             | more                               | why               |
      | in a missing database | &dbname=nosuch                     | does not exist    |
      | as an unknown user    | &user=nobody                       | does not exist    |
      | in a missing schema   | &options=-c%20search_path%3Dnosuch | cannot be created |

  @postgresql
  Scenario: A user without permission to create the tables is refused
    Given an empty store in PostgreSQL
    And a user there who may not make tables
    When a state is opened at {url}
    Then InvalidArgumentError is raised, which says "cannot be created"

  @postgresql
  Scenario: A read-only user is refused at the first write
    Given an empty store in PostgreSQL
    And tables there, and a user who may only read them
    When a state is opened at {url}
    Then InvalidArgumentError is raised, which says "permission denied"

  Scenario: A file that may only be read is refused at the first write
    Given an empty store in SQLite
    When a state writes to it that may only read it
    Then InvalidArgumentError is raised, which says "readonly database: even readers have to write to it"

  Scenario: A file that is not a database is refused
    Given a file that is not a database
    When a state is opened at {url}
    Then InvalidArgumentError is raised, which says "cannot be opened"

  Scenario Outline: Writes that <who> acknowledges are kept, though the file has <another name>
    Given an empty store in SQLite
    When <who> counts to 10 by its name, and another one by <another name>
    Then all increments that were acknowledged are counted, <how many> of them
    And the other one was told "<what>"

    Examples: refused, as each name would have a log of its own beside it
      | who     | another name          | how many | what                                    |
      | a state | a hard link           | 10       | keep one of them, and copy              |
      | a state | a mount of that file  | 10       | mount the folder that it is in          |

    Examples: right, as the log beside it is the same
      | who     | another name          | how many | what |
      | a state | a link by name        | 20       |      |
      | a state | a link to the folder  | 20       |      |

    @tdd_expected_fail
    Examples: SQLite as it is
      | who               | another name | how many | what |
      | a bare connection | a hard link  | 20       |      |

  Scenario Outline: Tables of a future version are refused, and left unchanged, in <backend>
    Given an empty store in <backend>
    And the tables in it are of a version to come
    When a state is opened at {url}
    Then InvalidArgumentError is raised, which says "or a newer release"
    And the error names the version of the tables, and that of this release

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

  Scenario Outline: Without <package> the error names the extra that brings it
    When <package> is not installed, and a state is opened at <url>
    Then the error says '<package>'
    And the error says pip install 'rxlanggraph[<extra>]'

    Examples:
      | package | url              | extra      |
      | psycopg | postgresql:///db | postgresql |

  # -- both ----------------------------------------------------------------------------------------

  Scenario Outline: Two increments <of whom> at the same moment both count, in SQLite
    Given an empty store in SQLite
    When <who> increments a counter twice at the same moment, over two connections
    Then the counter is 2

    Examples:
      | of whom        | who         |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: get, add, set
      | of whom           | who            |
      | of a get-then-set | a get-then-set |

  @postgresql
  Scenario Outline: Two increments <of whom> at the same moment both count, in PostgreSQL
    Given an empty store in PostgreSQL
    When <who> increments a counter twice at the same moment, over two connections
    Then the counter is 2

    Examples:
      | of whom        | who         |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: get, add, set
      | of whom           | who            |
      | of a get-then-set | a get-then-set |

  Scenario Outline: Keys whose time is up do not pile up in <backend>
    Given an empty store in <backend>
    When 60 keys are set one after the other, each for a millisecond
    Then at most 20 rows are left

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

  Scenario Outline: <What> do not pile up in <backend>
    Given an empty store in <backend>
    And tokens of keys that are gone are kept for a millisecond
    When 60 <what> come and go, one after the other
    Then at most 20 rows are left

    Examples:
      | What                          | what                          | backend |
      | Keys written under a token    | keys written under a token    | SQLite  |
      | Keys that expire with a token | keys that expire with a token | SQLite  |
      | Locks of dead holders         | locks of dead holders         | SQLite  |
      | Queues                        | queues                        | SQLite  |

    @postgresql
    Examples:
      | What                          | what                          | backend    |
      | Keys written under a token    | keys written under a token    | PostgreSQL |
      | Keys that expire with a token | keys that expire with a token | PostgreSQL |
      | Locks of dead holders         | locks of dead holders         | PostgreSQL |
      | Queues                        | queues                        | PostgreSQL |

  # -- SQLite --------------------------------------------------------------------------------------

  Scenario: A write waits for another process that writes, and reads wait for neither
    Given an empty store in SQLite
    When another connection writes for a while, and a write and 10 reads are made
    Then the reads were answered while the write waited
    And the counter is 2

  Scenario: A file that stays locked by another process delays calls for a limited time
    Given an empty store in SQLite
    When another connection has the file for good, and a write is made
    Then StateUnavailableError is raised, which says "locked"
    And the error leaves no doubt whether the call had an effect
    And the counter is 1

  Scenario: A write cancelled while it waits for the file takes effect as a whole or not at all
    Given an empty store in SQLite
    When another connection writes for a while, and a write is cancelled that waits for it
    Then it was cancelled, and the next one has come to 1 or 2

  Scenario Outline: <A call> on a file that is no longer at its path is refused
    Given an empty store in SQLite
    When the file is replaced by another while it is open, and <a call> is made
    Then StateUnavailableError is raised, which says "moved"
    And the error leaves no doubt whether the call had an effect
    And the counter is 1

    Examples:
      | A call           | a call           |
      | A write          | a write          |
      | A read           | a read           |
      | A claim          | a claim          |
      | A count of tasks | a count of tasks |

  Scenario Outline: <A call> on a file is refused once <another file> beside it was deleted
    Given an empty store in SQLite
    When the <another file> of the file is deleted while it is open, and <a call> is made
    Then StateUnavailableError is raised, which says "<another file>' was moved, deleted"
    And the error leaves no doubt whether the call had an effect
    And the counter is 2

    Examples:
      | A call  | a call  | another file |
      | A write | a write | -wal         |
      | A read  | a read  | -wal         |
      | A claim | a claim | -shm         |

  Scenario: A damaged file is an error, and not an answer
    Given an empty store in SQLite
    When all of the file but its first page becomes rubbish, and a write is made
    Then StateUnavailableError is raised, which says "malformed"
    And the error leaves no doubt whether the call had an effect

  Scenario: A large value does not slow down calls for other keys: they do not read it
    Given an empty store in SQLite
    When a large value becomes rubbish on the disk, and 3 keys around it are read and counted
    Then each of them has come to 2

  Scenario Outline: Calls that are under way when SQLite is closed <how> are answered, or refused undone
    Given an empty store in SQLite
    When 40 increments are made at the same time, and the database is closed <how> meanwhile
    Then each was answered, cancelled with the closing, or told that the state was closed
    And those that were answered are counted, and at most those cancelled besides
    And no thread of the file is left, and none has complained

    Examples:
      | how                     |
      | at once                 |
      | and that is cancelled   |

  Scenario: A disk that does not answer holds up the closing of SQLite for a limited time
    Given an empty store in SQLite
    And the time limit of closing SQLite is 0.1 seconds
    When SQLite is closed while the disk does not answer to a write, and then it answers
    Then closing has ended before the disk answered, and that is logged
    And the write was answered, and no thread of the file is left

  Scenario: A loop that is closed in the middle of a call ends the thread of the file
    Given an empty store in SQLite
    When a loop is closed while the disk does not answer to a write, and then it answers
    Then no thread of the file is left, and none has complained
    And the next increment has come to 2

  Scenario: A database that is dropped on a closed loop ends the thread of its file, with a warning
    Given an empty store in SQLite
    When a database is left open on a loop that is closed, and dropped
    Then no thread of the file is left, and none has complained
    And Python has warned of it with a ResourceWarning: was not closed

  Scenario: A process that leaves a state open on a closed loop ends all the same
    Given an empty store in SQLite
    When a process counts to 1, and leaves the state open on a loop that it closes
    Then the process has ended, and has said 1

  # -- PostgreSQL ----------------------------------------------------------------------------------

  @postgresql @tolerates:embedded_postgres
  Scenario: A server that is stopped and started again leaves nothing in doubt
    Given an empty store in PostgreSQL
    When 8 tasks count while the server is stopped and started again
    Then every increment was answered, and counted once

  @postgresql @tolerates:embedded_postgres
  Scenario: Acknowledged writes survive a crash of the server
    Given an empty store in PostgreSQL
    When 8 tasks count while the server crashes and is started again
    Then each increment that was answered is counted, and of the others those in doubt at most

  @postgresql
  Scenario: A silent server delays calls for a limited time, and is used again when it answers
    Given an empty store in PostgreSQL
    And the time limit of a call to PostgreSQL is 4 seconds
    When the server says nothing while an increment is made
    Then StateUnavailableError is raised, which says "longer than 4 seconds"
    And the error leaves a doubt whether the call had an effect

  @postgresql
  Scenario: A claim that gets no connection raises, though a claim is shielded from cancellation
    Given an empty store in PostgreSQL
    When a task is claimed while others have all the connections
    Then StateUnavailableError is raised, which says "none of 8 connections"
    And the error leaves no doubt whether the call had an effect

  @postgresql
  Scenario: Any number of calls shares eight connections
    Given an empty store in PostgreSQL
    When 300 increments are made at once
    Then the counter is 300
    And there were never more than 8 connections

  @postgresql
  Scenario: The URL sets the number of connections, and the time limit of a call
    Given an empty store in PostgreSQL
    When 60 increments are made over "pool_size=2&command_timeout=5"
    Then the counter is 60
    And there were never more than 2 connections
    And the server ends a statement after 4s

  @postgresql
  Scenario: A process that the network loses while it creates the tables holds up no other one for long
    Given an empty store in PostgreSQL
    When the network loses a process that creates the tables, and another one opens the store
    Then it was opened

  @once
  Scenario: Either end of a connection to PostgreSQL notices within a minute that the other one is lost
    Given a PostgreSQL server that listens on TCP
    When a connection to it is made
    Then each end probes the other after 30 seconds, and then 3 times in 30
    And the server gives up what is not acknowledged within 60 seconds

  @postgresql
  Scenario: Calls that are cancelled in the middle release their connections and their locks
    Given an empty store in PostgreSQL
    When 8 increments are cancelled that wait for another client's lock
    Then all of them were cancelled, and nothing of them is left on the server
    And the counter is 2

  @postgresql
  Scenario Outline: A claim <of whom> does not wait for a task that another worker has locked
    Given an empty store in PostgreSQL
    When another client holds the first of two tasks, and <who> claims one
    Then it has the second one

    Examples:
      | of whom        | who         |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: the first one that is free
      | of whom                   | who                    |
      | of one that does not skip | one that does not skip |

  @postgresql
  Scenario: A claim does not step over the leases of all completed tasks
    Given an empty store in PostgreSQL
    When 5000 tasks were completed, and their leases are long over
    Then a claim that looks for what fell due reads at least 5 times as many pages if it looks at all of them

  @postgresql
  Scenario Outline: A queue that has grown at once is not searched from end to end, <how>
    Given an empty store in PostgreSQL
    And a state whose plans there are <kept>
    When it works on a few tasks, then adds 5000 at once, and 200 are claimed and completed <how>
    Then fewer than 40 entries of indexes were read for each of the 5000

    Examples:
      | how         | kept                     |
      | in one step | kept                     |
      | one by one  | made again if it is slow |

    @tdd_expected_fail
    Examples: as PostgreSQL does by itself
      | how        | kept |
      | one by one | kept |

  @postgresql
  Scenario: With a transaction that stays open, a claim need not step over all claimed tasks
    Given an empty store in PostgreSQL
    When 3000 tasks were claimed while another client's transaction is open
    Then a claim from the first task on reads at least 5 times as many pages as one behind them

  @postgresql
  Scenario: If full searches are slow, a task that came back before the last claim is found by the next full search
    Given an empty store in PostgreSQL
    And full searches count as slow
    When "a" was claimed, then one task with a full search, "a" is given back, and claims go on
    Then what was claimed is "b", "c", after the next full search "a", "d", "e", and nothing

  @postgresql
  Scenario: A task that fell due long ago, and was not visible until now, is claimed after the next full search
    Given an empty store in PostgreSQL
    When a task turns up that fell due an hour ago, before all others, right after a full search
    Then claims return another one at first, and this one after a quarter of a second

  @postgresql
  Scenario: Concurrent claims find the same tasks as a single one
    Given an empty store in PostgreSQL
    When 4 workers claim 2 tasks and one that fell due an hour ago, and was not seen by the last full search
    Then each of the 3 was claimed once

  @postgresql
  Scenario: Claimed tasks are handed out, though the search for more gets no answer
    Given an empty store in PostgreSQL
    When 4 workers claim 2 tasks at the same time, and the server does not answer to the search for more
    Then 2 have a task each, and 2 are told that the server is away

  @postgresql
  Scenario Outline: A state does not take another queue for its own if its tables were <made anew>
    Given an empty store in PostgreSQL
    When a queue is used, its tables are <made anew>, and another namespace is the first to use them
    Then nothing can be claimed from the queue until something is added, and then that
    And after some claims its new number is known

    Examples:
      | made anew               |
      | emptied, numbers too    |
      | dropped, and made again |

  @postgresql
  Scenario Outline: A write <of whom> that the server ends to resolve a deadlock is repeated
    Given an empty store in PostgreSQL
    When <who> and another client write two keys in opposite orders, each holding one
    Then both have written, ours the second

    Examples:
      | of whom        | who         |
      | of the backend | the backend |

    @tdd_expected_fail
    Examples: naive: it is lost
      | of whom                  | who                   |
      | of a transaction by hand | a transaction by hand |
