Feature: A journal is where its name says, and what is none stays as it is

  Background:
    Given a folder with the file "graphs.py"
      """
      def double(content):
          return content["n"] * 2

      """
    And the file "good.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """

  Scenario Outline: status changes nothing in <what>
    Given <what>, called "other"
    When I run "rxlanggraph status <name>"
    Then the exit status is 2
    And standard error says "is no journal"
    And the folder is as it was

    Examples:
      | what                          | name                       |
      | somebody's SQLite file        | other                      |
      | somebody's SQLite file in WAL | sqlite:///other            |
      | an empty file                 | other                      |
      | no file                       | sqlite+aiosqlite:///other  |

  @postgresql
  Scenario: status makes no tables in PostgreSQL
    When I ask for the status of an empty database of PostgreSQL
    Then the exit status is 2
    And standard error says "is no journal"
    And the database is still empty

  Scenario: status shows a journal in a folder that cannot be written to
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run
    And nothing can be written in the folder
    When I run "rxlanggraph status j"
    Then the exit status is 0
    And SQLite was opened elsewhere alone

  Scenario Outline: The journal is not overwritten under another name: <arguments>
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal jA.db" has run
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --resume <arguments>"
    Then the exit status is 2
    And standard error says "--journal and --<option> are both jA.db; name another file"
    When I run "rxlanggraph status jA.db"
    Then the exit status is 0

    Examples:
      | arguments                                          | option |
      | --journal sqlite:///jA.db -o jA.db                 | output |
      | --journal sqlite+aiosqlite:///jA.db -o jA.db       | output |
      | --journal sqlite:///j%41.db --errors jA.db         | errors |

  # On an input that is not there: else, if this were not refused, SQLite's shared memory would be cut
  # off, which is the end of this process.
  Scenario Outline: Nor are the files overwritten that SQLite keeps beside it: <arguments>
    Given "link" leads to "j"
    When I run "rxlanggraph run graphs.py:double -i nowhere.jsonl <arguments>"
    Then the exit status is 2
    And standard error says "--<option> <file> is a file that the --journal keeps beside it; name another file"
    And the folder is as it was

    Examples:
      | arguments                                 | option | file        |
      | --journal j -o j-wal                      | output | j-wal       |
      | --journal j -o ./j-shm                    | output | ./j-shm     |
      | --journal sqlite:///j -o j-journal        | output | j-journal   |
      | --journal j -o out.jsonl --errors j-wal   | errors | j-wal       |
      | --journal link -o j-wal                   | output | j-wal       |

  Scenario: A path is taken as it is, with a % or a ? in it too
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal k%41?.db"
    Then the exit status is 0
    And there is a file "k%41?.db" and none called "kA?.db"
    When I run "rxlanggraph status k%41?.db"
    Then the exit status is 0
    When I run "rxlanggraph status sqlite:///k%2541%3F.db"
    Then the exit status is 0

  Scenario Outline: A number that cannot be is refused before anything is touched: <option>
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j <option>"
    Then the exit status is 2
    And standard error says "Invalid value for"
    And the folder is as it was

    Examples:
      | option                       |
      | --lease nan                  |
      | --lease inf                  |
      | --timeout nan                |
      | --timeout inf                |
      | --max-attempts 9999999999999 |
      | --retries 9999999999999      |
      | --rate 0.00000000000001/h    |
      | -j 10001                     |

  Scenario Outline: No message shows a password: <url>
    When I run "rxlanggraph status <url>"
    Then standard error says "***"
    And standard error has neither "SEC" nor "RET"

    Examples:
      | url                                                     |
      | redis://127.0.0.1:1/0?password=SECRET                   |
      | postgresql://127.0.0.1:1/db?user=u&password=SEC@RET     |
      | redis://u:SEC@RET@127.0.0.1:1/0                         |
      | postgresql://u:SEC@RET@127.0.0.1:1/db                   |
      | postgresql://u:SEC/RET@127.0.0.1:1/db                   |
      | redis://u:SEC#RET@127.0.0.1:1/0                         |

  Scenario: A missing folder is named
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --journal no/where"
    Then the exit status is 2
    And standard error says "there is no folder"

  Scenario: status asks nobody to go on with a run
    When I run "rxlanggraph status redis://127.0.0.1:1/"
    Then the exit status is 5
    And standard error says "when it is back, ask again"

  Scenario: A driver that finds no library of the system names the extra that brings it
    Given psycopg finds no libpq
    When I run "rxlanggraph status postgresql://127.0.0.1:1/db"
    Then the exit status is 2
    And standard error says "no pq wrapper"
    And standard error says "pip install 'rxlanggraph[postgresql]'"

  Scenario: A conformance check that fails is told by the exit status
    Given a conformance check that fails
    When the conformance checks are run with "memory:"
    Then they end with status 1, and say ""

  Scenario Outline: The conformance checks say what is wrong with "<arguments>"
    When the conformance checks are run with "<arguments>"
    Then they end with status 2, and say "<remedy>"

    Examples:
      | arguments           | remedy                           |
      |                     | arguments are required: url      |
      | nowhere:            | the URL of a state must begin    |
      | memory: nonsense    | no check has 'nonsense'          |
