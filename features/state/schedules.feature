@once
Feature: Periodic tasks are added once for each due time, and old tasks purged, whichever process lives

  Time is virtual, or told to the processes: nothing sleeps until a task is due.

  # -- each due time has one task ------------------------------------------------------------------

  Scenario Outline: <Two schedulers> add one task for each due time
    Given <two schedulers> of a task that is due every ten minutes
    When both run for an hour
    Then each of its 6 due times has one task

    Examples:
      | Two schedulers                | two schedulers                |
      | Two schedulers                | two schedulers                |
      | Two that both hold a lock     | two that both hold a lock     |

    @tdd_expected_fail
    Examples: naive: each process adds what its own timer says
      | Two schedulers                | two schedulers                |
      | Two timers                    | two timers                    |

  Scenario Outline: When the leader stops, another scheduler takes over in <backend>
    Given two schedulers on a store in <backend>, and a clock that is told
    When the clock passes three due times, and the leader is cancelled between them
    Then each of the three has one task there, in the order of due times

    Examples:
      | backend |
      | memory  |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario: A process that is killed after it has added a task, before it has written so, leaves it to another
    Given two processes that run one schedule on an SQLite file
    When the leading one is killed between these two steps, and the clock passes two more due times
    Then the other one leads, and each of the four due times has one task

  # -- what was missed -----------------------------------------------------------------------------

  Scenario Outline: Of what is due while no process runs, <which> is added
    Given a task that is due every ten minutes, with missed="<missed>"
    When a scheduler runs for half an hour, none for an hour, and another one for half an hour
    Then these minutes have tasks: <minutes>

    Examples:
      | which        | missed | minutes                              |
      | the last one | last   | 20 30 40 100 110 120 130             |
      | every one    | all    | 20 30 40 50 60 70 80 90 100 110 120 130 |
      | nothing      | none   | 20 30 40 110 120 130                 |

  Scenario: What a process that waits for the lock has seen pass is added when it leads
    Given two schedulers of a task that is due every ten minutes
    When the leader stands still for an hour, and then the other one leads
    Then each of its 6 due times has one task

  Scenario: A schedule with another expression has missed nothing
    Given a task that is due every ten minutes, with missed="all"
    When a scheduler runs for half an hour, none for an hour, and one that is due every 7 minutes for half an hour
    Then these minutes have tasks: 20 30 40 109 116 120 127 134

  Scenario: More due times than fit in a step are added, in several
    Given a task that is due every minute, with missed="all"
    When a scheduler runs for a minute, none for 1200 minutes, and another one for a minute
    Then 1202 due times have tasks

  Scenario: A schedule is due by the clocks of its time zone
    Given a task that is due at six in Rome
    Then it is due at these times around the end of summer time
      | UTC              |
      | 2026-10-24 04:00 |
      | 2026-10-25 05:00 |
      | 2026-10-26 05:00 |

  Scenario Outline: A schedule in <time zone> ends with the calendar, and is never due in a year after 9999
    Given a task that is due by "*/10 * * * *" in <time zone>
    Then it is due once more after 9999-12-31 08:00 UTC, and never after these times
      | seconds since 1970 |
      | 253402300799       |
      | 253402300800       |
      | 1e20               |

    Examples:
      | time zone          |
      | UTC                |
      | Europe/Rome        |
      | Pacific/Kiritimati |
      | America/New_York   |

  Scenario Outline: A time from which no due time can be told is refused: <after>
    Given a task that is due by "*/10 * * * *" in UTC
    Then the first due time after <after> is refused with InvalidArgumentError

    Examples:
      | after |
      | -1    |
      | nan   |
      | inf   |
      | None  |
      | "now" |

  Scenario Outline: The last missed due time is found in <time zone> also when its clocks are changed
    Given a task that is due by "<cron>" in <time zone>
    When a scheduler runs at <first>, and the next one at <second>, by UTC
    Then the task that was due at <last> is the only one

    Examples:
      | time zone           | cron        | first            | second           | last             |
      | Europe/Rome         | 30 2 * * *  | 2026-10-23 12:00 | 2026-10-25 01:10 | 2026-10-25 00:30 |
      | Australia/Lord_Howe | 0 */2 * * * | 2026-04-04 10:00 | 2026-04-04 16:56 | 2026-04-04 13:00 |

  Scenario: A leader whose clock was years ahead has its successors say until when they add nothing
    Given a task that is due by "0 0 1 1 *" in UTC
    When a scheduler runs at 2036-01-01 00:00, and the next one at 2026-01-01 00:00, by UTC
    Then 1 warnings were logged, which say "adds nothing until 2036-01-01T00:00:00Z"
    And once its key is deleted, as they say, a scheduler at 2026-12-31 23:59:55 adds a task

  # -- retention -----------------------------------------------------------------------------------

  Scenario: The leader purges what retention lets go, the others nothing
    Given two schedulers that keep the newest 3 completed tasks, and purge every hour
    When tasks are completed every ten minutes for five hours
    Then 3 to 9 completed tasks were there at any time, and one of the two has purged, five times or more

  Scenario: A scheduler that takes over deals with what was added before it purges anything
    Given a scheduler that ended after it had added a task, before it had written so
    When the task is completed, and another scheduler takes over, which keeps no completed task
    Then the queue has no task

  # -- what goes wrong -----------------------------------------------------------------------------

  Scenario: A scheduler outlives a server that does not answer
    Given two schedulers of a task that is due every ten minutes
    When the server is gone for a quarter of an hour, and both run on for an hour
    Then each of its 6 due times has one task

  Scenario: A scheduler ends with its state
    Given two schedulers of a task that is due every ten minutes
    When the states are closed while they run
    Then both end with StateClosedError

  # -- threads without a loop ----------------------------------------------------------------------

  Scenario Outline: In a thread without a loop a scheduler runs for as long as a block: <end>
    Given a state of a thread without a loop
    When a scheduler runs there during a block that claims a task, which <end>
    Then the block has ended with <error>, and the scheduler with it

    Examples:
      | end                       | error             |
      | ends                      | None              |
      | raises a LookupError      | LookupError       |
      | sees it fail              | OSError           |

  Scenario Outline: A block in which a scheduler runs is refused <where>
    Given a state of a thread without a loop
    When a block in which a scheduler runs is entered <where>
    Then it is refused with <error>, which says "<words>"

    Examples:
      | where                | error                | words                    |
      | on the state's loop  | BlockingCallError    | await the method there   |
      | a second time        | UsageError           | run_threadsafe()         |
      | after its loop ended | LoopUnavailableError | is not running           |

  Scenario Outline: <What> is refused where it is declared
    When a schedule or scheduler is declared with <what>
    Then it is refused with <error>, which says "<words>"

    Examples:
      | What                    | what                    | error                | words                              |
      | No cron expression      | no cron expression      | InvalidArgumentError | must be a cron expression          |
      | A number as expression  | a number as expression  | InvalidTypeError     | cron must be a string              |
      | A day that never comes  | a day that never comes  | InvalidArgumentError | must be a cron expression          |
      | An unknown time zone    | an unknown time zone    | InvalidArgumentError | such as 'Europe/Rome'              |
      | Another rule            | another rule            | InvalidArgumentError | missed must be one of 'last'       |
      | An item that is a set   | an item that is a set   | InvalidTypeError     | JSON                               |
      | A name that is too long | a name that is too long | InvalidArgumentError | name must have                     |
      | One name twice          | one name twice          | InvalidArgumentError | schedules has two of the name 's'  |
      | A number as a thread    | a number as a thread    | InvalidTypeError     | thread_id must be                  |
      | No attempts             | no attempts             | InvalidArgumentError | max_attempts must be               |
      | A schedule alone        | a schedule alone        | InvalidTypeError     | schedules must be a list           |
      | A queue as a schedule   | a queue as a schedule   | InvalidTypeError     | each of schedules must be a Schedule |
      | An age below zero       | an age below zero       | InvalidArgumentError | older_than must be                 |
      | A negative number kept  | a negative number kept  | InvalidArgumentError | keep must be 0 or more             |
      | Retention without end   | retention without end   | InvalidArgumentError | needs older_than=, keep= or both   |
      | No state                | no state                | InvalidTypeError     | as open_state(...) opens it        |
      | No package              | no package              | MissingExtraError    | pip install 'rxlanggraph[cron]'    |

  Scenario: The command lists schedules
    Given an SQLite store with a schedule that has run
    When "rxlanggraph state URL schedules" is run on it, and with --json
    Then it lists the schedule with its expression, time zone, queue and how far it is
