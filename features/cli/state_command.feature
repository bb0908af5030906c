@once
Feature: rxlanggraph state shows what is in a store, and changes it from outside

  The store of these scenarios has a task in every state in its queue "lines", a lock, and three keys
  (`features/support/state/old_stores.py`).

  Scenario Outline: Queues, tasks, locks and keys are shown as tables, in <backend>
    Given a store with tasks in every state in <backend>
    When "rxlanggraph state URL queues" is run there
    Then these columns are shown
      | queue | waiting | delayed | claimed | completed | dead | expired |
      | lines | 3       | 1       | 1       | 1         | 2    | 1       |
    When "rxlanggraph state URL stats lines" is run there
    Then these columns are shown
      | worker | claimed |
      | w      | 1       |
    When "rxlanggraph state URL tasks lines --state dead" is run there
    Then these columns are shown
      | state | attempts |
      | dead  | 1 of 1   |
      | dead  | 1 of 1   |
    When "rxlanggraph state URL tasks lines --thread t" is run there
    Then these columns are shown
      | state   | attempts | worker | thread |
      | waiting | 0 of 1   |        | t      |
      | waiting | 0 of 1   |        | t      |
    When "rxlanggraph state URL dead-letters lines" is run there
    Then these columns are shown
      | worker | error                                                 |
      | w      | ValueError: no                                        |
      | killed | LeaseLostError: the lease of the last attempt expired |
    When "rxlanggraph state URL locks" is run there
    Then these columns are shown
      | lock | lease ends in |
      | held | 11574d 1h     |
    When "rxlanggraph state URL keys --prefix co" is run there
    Then these columns are shown
      | key           |
      | configuration |
      | counted       |

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: A task is shown with its history, in <backend>
    Given a store with tasks in every state in <backend>
    When "rxlanggraph state URL task lines COMPLETED --json" is run there
    Then its JSON has the state completed, the result {"is": "done"}, and times in their order
    When "rxlanggraph state URL task lines COMPLETED" is run there
    Then it shows lines for task, queue, priority, state, attempts, worker, added, claimed, ended, item, result
    When "rxlanggraph state URL task lines nosuch" is run there
    Then the exit status is 1
    And standard error says "has no task 'nosuch': see 'rxlanggraph state URL tasks lines'"

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario: A table shows as many rows as are asked for, and JSON all of them
    Given a store with 120 tasks that wait
    When "rxlanggraph state URL tasks many" is run there
    Then it shows 50 tasks, and that there are more
    When "rxlanggraph state URL tasks many --limit 7" is run there
    Then it shows 7 tasks, and that there are more
    When "rxlanggraph state URL tasks many --limit 120" is run there
    Then it shows 120 tasks
    When "rxlanggraph state URL tasks many --json" is run there
    Then its JSON has 120 lines
    When "rxlanggraph state URL tasks many --older-than 1h --json" is run there
    Then its JSON has 0 lines
    When "rxlanggraph state URL tasks many --newer-than 1h --json --limit 3" is run there
    Then its JSON has 3 lines

  Scenario Outline: <command> prints with --json a JSON object for each that it shows
    Given a store with tasks in every state in SQLite
    When "rxlanggraph state URL <command> --json" is run there
    Then its JSON has <count> lines

    Examples:
      | command            | count |
      | queues             | 1     |
      | stats lines        | 1     |
      | dead-letters lines | 2     |
      | locks              | 1     |
      | migrate --check    | 1     |

  Scenario: An output that is closed ends the command, with an error of one line
    Given a store with 1000 tasks that wait
    When "rxlanggraph state URL tasks many --json" is run there, and its output closed after a line
    Then the exit status is 4
    And standard error is the line "rxlanggraph: the reader of standard output has gone (closed pipe)"

  Scenario Outline: With --dry-run, <command> only shows what it would do
    Given a store with tasks in every state in SQLite
    When "rxlanggraph state URL <command> --dry-run" is run there
    Then standard output says "<what>"
    And the exit status is 0
    And the tasks are as they were

    Examples:
      | command                            | what                                        |
      | purge lines                        | would purge 1 completed task of lines       |
      | purge lines --state dead           | would purge 2 dead tasks of lines           |
      | purge lines --state waiting        | would purge 4 waiting tasks of lines        |
      | purge lines --older-than 1h        | would purge 0 completed tasks of lines      |
      | purge lines --state dead --keep 1  | would purge 1 dead task of lines            |
      | requeue lines --all                | would requeue 2 dead tasks of lines         |
      | requeue lines DEAD                 | would requeue 1 dead task of lines          |
      | cancel lines WAITING               | would cancel 1 task of lines                |
      | cancel lines WAITING --json        | {"cancelled": 1, "queue": "lines", "dry_run": true} |

  Scenario Outline: What a call would refuse, --dry-run refuses too, with the same words: <options>
    Given a store with tasks in every state in SQLite
    When "rxlanggraph state URL purge lines <options>" is run there
    Then the exit status is 2
    And standard error says "<why>"
    When "rxlanggraph state URL purge lines <options> --dry-run" is run there
    Then the exit status is 2
    And standard error says "<why>"
    And the tasks are as they were

    Examples:
      | options                        | why                                                                |
      | --older-than 36601d            | --older-than': TIME must be 0 or more seconds, and less than 100 years |
      | --older-than 99999999999999d   | --older-than': TIME must be 0 or more seconds, and less than 100 years |
      | --keep 9223372036854775808     | --keep': 9223372036854775808 is too large                          |

  Scenario: A time after the year 9999, as of a wrong clock, is shown in seconds
    Given a store with tasks in every state in SQLite
    And another program has set the time at which all were added to 1e12
    When "rxlanggraph state URL tasks lines --json" is run there
    Then the exit status is 0
    And standard output says ""added": "1000000000000 s after 1970""
    When "rxlanggraph state URL task lines COMPLETED" is run there
    Then standard output says "added     1000000000000 s after 1970"

  Scenario Outline: A text that is not JSON, which another program has stored, is named: <command>
    Given a store with tasks in every state in SQLite
    And another program has written <text> as every item and value
    When "rxlanggraph state URL <command>" is run there
    Then the exit status is 2
    And standard error is one line that says "<what>", "another program has written it" and "or delete it"

    Examples:
      | command             | text     | what                                                     |
      | value configuration | nonsense | the value of 'configuration' is not JSON                 |
      | value configuration | a BLOB   | it is not text                                           |
      | value configuration | not UTF-8 | has text that is not UTF-8                              |
      | value configuration | [[[[...  | maximum recursion depth exceeded                         |
      | dead-letters lines  | nonsense | the item of task                                         |
      | task lines DEAD     | nonsense | the item of task                                         |

  @valkey
  Scenario Outline: Bytes that are not UTF-8, which another program has stored in Valkey, are named: <command>
    Given a store with tasks in every state in Valkey
    And another program has written the bytes 22 ff 22 as every item and value there
    When "rxlanggraph state URL <command>" is run there
    Then the exit status is <status>
    And standard error is one line that says "<what>", "another program has written it" and "or delete it"

    Examples:
      | command             | status | what                                     |
      | value configuration | 2      | the value of 'configuration' is not JSON |
      | dead-letters lines  | 2      | the item of task                         |

  Scenario Outline: <command> changes what it names, in <backend>
    Given a store with tasks in every state in <backend>
    When "rxlanggraph state URL <command>" is run there
    Then standard output says "<what>"
    And the exit status is 0
    And of the tasks, <waiting> wait, <claimed> are claimed, <completed> completed and <dead> dead

    Examples:
      | backend | command                  | what                           | waiting | claimed | completed | dead |
      | SQLite  | purge lines              | purged 1 completed task        | 4       | 1       | 0         | 2    |
      | SQLite  | purge lines --state dead | purged 2 dead tasks            | 4       | 1       | 1         | 0    |
      | SQLite  | purge lines --older-than 1h | purged 0 completed tasks    | 4       | 1       | 1         | 2    |
      | SQLite  | purge lines --state dead --keep 1 | purged 1 dead task    | 4       | 1       | 1         | 1    |
      | SQLite  | requeue lines --all      | requeued 2 dead tasks          | 6       | 1       | 1         | 0    |
      | SQLite  | requeue lines DEAD       | requeued 1 dead task           | 5       | 1       | 1         | 1    |
      | SQLite  | cancel lines WAITING     | cancelled 1 task               | 3       | 1       | 1         | 3    |
      | SQLite  | cancel lines CLAIMED     | cancelled 1 task               | 4       | 0       | 1         | 3    |

    @postgresql
    Examples:
      | backend    | command              | what             | waiting | claimed | completed | dead |
      | PostgreSQL | cancel lines CLAIMED | cancelled 1 task | 4       | 0       | 1         | 3    |

    @valkey
    Examples:
      | backend | command              | what             | waiting | claimed | completed | dead |
      | Valkey  | cancel lines CLAIMED | cancelled 1 task | 4       | 0       | 1         | 3    |

  Scenario: A named task that cannot be changed makes the exit status 1
    Given a store with tasks in every state in SQLite
    When "rxlanggraph state URL cancel lines COMPLETED" is run there
    Then the exit status is 1
    And standard output says "cancelled 0 tasks of lines"
    When "rxlanggraph state URL requeue lines DEAD nosuch" is run there
    Then the exit status is 1
    And standard error says "1 of the 2 ids named no such task: see 'rxlanggraph state URL tasks lines'"
    When "rxlanggraph state URL requeue lines" is run there
    Then the exit status is 2
    And standard error says "or give --all"

  Scenario Outline: A store of the first version is only migrated on request, in <backend>
    Given a store of the first version in <backend>
    When "rxlanggraph state URL queues" is run there
    Then the exit status is 2
    And standard error says "needs version"
    When "rxlanggraph state URL migrate --check" is run there
    Then the exit status is 1
    And standard output says "is due"
    And its version is still the first one
    When "rxlanggraph state URL migrate" is run there
    Then the exit status is 0
    And its version is that of this release
    When "rxlanggraph state URL migrate --check" is run there
    Then the exit status is 0
    And standard output says "up to date"
    When "rxlanggraph state URL queues" is run there
    Then the exit status is 0

    Examples:
      | backend |
      | SQLite  |

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario Outline: A store of a future version is refused by <command>
    Given an empty store in SQLite
    And the tables in it are of a version to come
    When "rxlanggraph state URL <command>" is run there
    Then the exit status is 2
    And standard error says "or a newer release"

    Examples:
      | command         |
      | migrate --check |
      | migrate         |
      | queues          |

  Scenario: A journal is read under the name that the run had
    Given a journal of the first version, with two failed lines
    When I run "rxlanggraph state --journal run.db migrate"
    Then the exit status is 0
    When I run "rxlanggraph state --journal run.db dead-letters lines"
    Then the exit status is 0
    And standard output says "{"line":4,"

  Scenario: With --journal, a store that is not a journal is refused, and not shown as an empty one
    Given an empty folder
    And a store with a task in the file "store.db" there
    When I run "rxlanggraph state --journal store.db queues"
    Then the exit status is 2
    And standard error says "store.db is not a journal"

  Scenario: Without --journal, a journal is named as one, beside the table of an empty store
    Given a journal of the first version, with two failed lines
    When I run "rxlanggraph state --journal run.db migrate"
    And I run "rxlanggraph state run.db queues"
    Then the exit status is 0
    And standard error says "run.db is a journal, which is shown with --journal before it"

  Scenario Outline: Without --journal, a journal in <backend> is named as one
    Given a store in <backend> that has nothing but a journal
    When "rxlanggraph state URL queues" is run there
    Then the exit status is <status>
    And standard error says "is a journal, which is shown with --journal before it"

    @postgresql
    Examples:
      | backend    | status |
      | PostgreSQL | 0      |

    @valkey
    Examples: there are no tables, so nothing of that namespace
      | backend | status |
      | Valkey  | 2      |

  Scenario Outline: An option of the store behind its URL is refused with a remedy: <option>
    Given an empty folder
    And a store with a task in the file "store.db" there
    When I run "rxlanggraph state store.db <option> queues"
    Then the exit status is 2
    And standard error says "write <name> before URL"

    Examples:
      | option        | name        |
      | --namespace x | --namespace |
      | --namespace=x | --namespace |
      | --journal     | --journal   |

  Scenario Outline: <place> is refused, and nothing is made there
    Given an empty folder
    When I run "rxlanggraph state <place> queues"
    Then the exit status is <status>
    And standard error says "<why>"
    And the folder is as it was

    Examples:
      | place                    | status | why                          |
      | nosuch.db                | 2      | there is no state at         |
      | sqlite:///nosuch.db      | 2      | there is no state at         |
      | memory:name              | 2      | in the memory of one process |
      | mysql://localhost/x      | 2      | must begin with              |
      | postgres:localhost       | 2      | write ./ before it           |
      | redis://127.0.0.1:1/     | 5      | does not answer              |
      | postgresql://127.0.0.1:1 | 5      | does not answer              |

  Scenario Outline: The password in <place> is not shown
    Given an empty folder
    When I run "rxlanggraph state <place> queues"
    Then neither standard output nor standard error shows its password

    Examples:
      | place                               |
      | redis://u:SECRET@127.0.0.1:1/       |
      | postgresql://u:SECRET@127.0.0.1:1/x |
      | postgresql://u:SEC@RET@127.0.0.1:1/ |
      | redis:u:SECRET@127.0.0.1:1          |
      | u:SECRET@127.0.0.1                  |
      | mysql://u:SECRET@127.0.0.1/x        |

  @valkey
  Scenario Outline: The password of a server may come from <where>
    Given a server with a user whose password is "SECRET"
    And a state there, whose password is in <where>
    When "rxlanggraph state URL queues" is run there
    Then the exit status is 0
    And neither standard output nor standard error shows its password

    Examples:
      | where                           |
      | RXLANGGRAPH_STATE_PASSWORD      |
      | RXLANGGRAPH_STATE_PASSWORD_FILE |

  Scenario Outline: What the encoding of a terminal does not have is shown as escapes: <encoding>
    Given a store whose queue has the name 日本ü
    When "rxlanggraph state URL queues" is run there, and its output is in <encoding>
    Then the exit status is 0
    And standard output says "<name>"

    Examples:
      | encoding | name          |
      | cp1252   | \u65e5\u672cü |
      | cp932    | 日本\xfc      |

  Scenario: On a full disk a store cannot be read, now and later, and the error says why
    Given a store with 3 tasks that wait
    When "rxlanggraph state URL queues" is run there where the disk is full
    Then the exit status is 5
    And standard error says "the disk may be full"
    When "rxlanggraph state URL queues" is run there where the disk is full
    Then the exit status is 5
    And standard error says "the disk may be full"

  Scenario: Control characters in names do not reach the terminal
    Given a store whose queue and worker have names with control characters
    When "rxlanggraph state URL queues" is run there
    Then standard output says "\x1b[2Jqueue"
    And no control character is shown
