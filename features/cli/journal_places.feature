Feature: A journal is where its name says, and a file that is not a journal is left unchanged

  Background:
    Given a folder with the file "graphs.py"
      """
      import pathlib

      def double(content):
          return content["n"] * 2

      def telling_modes(content):
          modes = {path.name: path.stat().st_mode & 0o777 for path in pathlib.Path().glob("j*")}
          pathlib.Path("modes").write_text(repr(modes))

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
    And standard error says "is not a journal"
    And the folder is as it was

    Examples:
      | what                                 | name            |
      | another program's SQLite file        | other           |
      | another program's SQLite file in WAL | sqlite:///other |
      | an empty file                        | other           |
      | no file                              | sqlite:///other |

  Scenario: The URL of a file that names a driver is refused
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --journal sqlite+aiosqlite:///j"
    Then the exit status is 2
    And standard error says "must begin with sqlite:///"
    And the folder is as it was

  @postgresql
  Scenario: status makes no tables in PostgreSQL
    When I ask for the status of an empty database of PostgreSQL
    Then the exit status is 2
    And standard error says "is not a journal"
    And the database is still empty

  Scenario Outline: status shows a journal <which> cannot be written to
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run
    And <what> cannot be written to
    When I run "rxlanggraph status j"
    Then the exit status is 0
    And SQLite was opened elsewhere alone

    Examples:
      | which              | what       |
      | in a folder that   | the folder |
      | that               | "j"        |

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
      | --journal sqlite:///j%41.db --errors jA.db         | errors |

  # On an input that is not there: else, if this were not refused, SQLite's shared memory would be cut
  # off, which is the end of this process.
  Scenario Outline: Nor are the files overwritten that SQLite keeps beside it: <arguments>
    Given "link" leads to "j"
    When I run "rxlanggraph run graphs.py:double -i nowhere.jsonl <arguments>"
    Then the exit status is 2
    And standard error says "--<option> <file> is one of the files of the --journal; name another file"
    And the folder is as it was

    Examples:
      | arguments                                 | option | file        |
      | --journal j -o j-wal                      | output | j-wal       |
      | --journal j -o ./j-shm                    | output | ./j-shm     |
      | --journal sqlite:///j -o j-journal        | output | j-journal   |
      | --journal j -o out.jsonl --errors j-wal   | errors | j-wal       |
      | --journal link -o j-wal                   | output | j-wal       |

  Scenario Outline: A link that leads to itself is refused as <what>
    Given "link.py" leads to "link.py"
    When I run "rxlanggraph run <arguments>"
    Then the exit status is <status>
    And standard error says "<why>"

    Examples:
      | what      | arguments                                                    | status | why                             |
      | --journal | graphs.py:double -i good.jsonl -o out.jsonl --journal link.py | 2      | cannot open the journal link.py |
      | --output  | graphs.py:double -i good.jsonl -o link.py --journal j         | 4      | cannot write link.py            |
      | --errors  | graphs.py:double -i good.jsonl -o out.jsonl --errors link.py  | 4      | cannot write link.py            |
      | a graph   | link.py:double -i good.jsonl -o out.jsonl                     | 2      | no file 'link.py'               |

  Scenario Outline: A path that the system does not accept is reported, in <what>
    Given a name that is too long for a file
    When I run "rxlanggraph <arguments>"
    Then the exit status is <status>
    And standard error says "<why>"

    Examples:
      | what      | arguments                                                           | status | why              |
      | --journal | run graphs.py:double -i good.jsonl -o out.jsonl --journal {journal} | 2      | cannot be opened |
      | status    | status {journal}                                                    | 2      | is not a journal |
      | --output  | run graphs.py:double -i good.jsonl -o {journal} --journal j         | 4      | cannot write     |
      | --input   | run graphs.py:double -i {journal} -o out.jsonl --journal j          | 2      | cannot read      |
      | a graph   | run {journal}.py:double -i good.jsonl -o out.jsonl                  | 2      | no file          |

  Scenario: A path is used literally, with a % or a ? in it too
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal k%41?.db"
    Then the exit status is 0
    And there is a file "k%41?.db" and none called "kA?.db"
    When I run "rxlanggraph status k%41?.db"
    Then the exit status is 0
    When I run "rxlanggraph status sqlite:///k%2541%3F.db"
    Then the exit status is 0

  Scenario Outline: An invalid number is refused before anything is touched: <option>
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

  Scenario Outline: No message shows a password, and no file is named after it: <url>
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal '<url>' --resume"
    Then nothing that was said has "SEC" or "RET"
    And no file is named after "<url>"
    When I run "rxlanggraph status '<url>'"
    Then the exit status is not 0
    And nothing that was said has "SEC" or "RET"

    Examples: As they are written
      | url                                                     |
      | redis://u:SEC%20RET@127.0.0.1:1/0                       |
      | redis://SECRET@127.0.0.1:1/0                            |
      | redis://127.0.0.1:1/0?password=SECRET                   |
      | postgresql://127.0.0.1:1/db?user=u&password=SEC@RET     |

    Examples: Not escaped
      | url                                                     |
      | redis://u:SEC@RET@127.0.0.1:1/0                         |
      | postgresql://u:SEC@RET@127.0.0.1:1/db                   |
      | postgresql://u:SEC/RET@127.0.0.1:1/db                   |
      | postgresql://u:SEC?RET@127.0.0.1:1/db                   |
      | postgresql://u:SEC%RET@127.0.0.1:1/db                   |
      | postgresql://u:SEC RET@127.0.0.1:1/db                   |
      | postgresql://127.0.0.1:1/db?password=SEC&RET            |
      | postgresql://127.0.0.1:1/db?password=SEC&RET=1          |
      | postgresql://127.0.0.1:1/db?sslpassword=SEC#RET         |
      | redis://127.0.0.1:1/0?password=SEC&RET=1                |
      | redis://u:SEC#RET@127.0.0.1:1/0                         |
      | redis://u:SEC#RET                                       |
      | redis://127.0.0.1:1/0?password=SEC#RET!                 |

    Examples: Without a host, or without slashes
      | url                                                     |
      | postgresql://u:SECRET                                   |
      | postgresql://u:SECRET/db                                |
      | postgresql://u:SECRET@                                  |
      | redis://:SECRET@                                        |
      | redis://:SECRET/0                                       |
      | redis:u:SECRET@127.0.0.1:1/0                            |
      | redis:/u:SECRET@127.0.0.1:1/0                           |
      | postgresql:u:SECRET@127.0.0.1:1/db                      |
      | postgresql+psycopg:u:SECRET@127.0.0.1:1/db              |
      | u:SECRET@127.0.0.1:1/db                                 |

    Examples: Of something else
      | url                                                     |
      | mysql://u:SECRET@127.0.0.1:1/db                         |
      | sqlite://u:SECRET@127.0.0.1:1/db                        |
      | unix://u:SECRET@/nowhere/socket                         |
      | unix://u:SECRET                                         |
      | sqlite:///journal?password=SECRET                       |

  Scenario: A file may be named like a server, as its path shows that it is a file
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal redis:a@b"
    Then the exit status is 2
    And standard error says "name of a file, write ./"
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal ./redis:a@b"
    Then the exit status is 0

  Scenario: A journal is readable only by its owner, and so are the files that SQLite keeps beside it
    When I run "rxlanggraph run graphs.py:telling_modes -i good.jsonl -o out.jsonl --journal j"
    Then the exit status is 0
    And while it ran, each file of the journal had the mode 0600

  Scenario Outline: A password in the environment becomes that of the URL, escaped, where that has none: <url>
    Given the password is in RXLANGGRAPH_JOURNAL_PASSWORD
    Then the journal "<url>" is at "<whole>"

    Examples:
      | url                              | whole                                            |
      | redis://host:1/0                 | redis://:{password}@host:1/0                     |
      | redis://user@host:1/0            | redis://user:{password}@host:1/0                 |
      | redis://host/0?socket_timeout=1  | redis://:{password}@host/0?socket_timeout=1      |
      | unix://user@/socket?db=1         | unix://user:{password}@/socket?db=1              |
      | unix:///socket                   | unix://:{password}@/socket                       |
      | postgresql:///db                 | postgresql://:{password}@/db                     |
      | postgresql://one:1,two:2/db#run  | postgresql://:{password}@one:1,two:2/db          |
      | postgresql://user@[::1]/db       | postgresql://user:{password}@[::1]/db            |
      | redis://user:own@host            | redis://user:own@host                            |
      | postgresql://host/db?password=x  | postgresql://host/db?password=x                  |

  @valkey
  Scenario Outline: The password of a server may come from <where>, and is then not in the list of processes
    Given a server with a user whose password is "p@ss/w#rd%?&"
    And the password is in <where>
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal <journal>"
    Then the exit status is 0
    And standard error does not say "list of processes"
    When I run "rxlanggraph status <journal>"
    Then the exit status is 0

    Examples:
      | where                                         | journal          |
      | RXLANGGRAPH_JOURNAL_PASSWORD                  | {journal}        |
      | the file of RXLANGGRAPH_JOURNAL_PASSWORD_FILE | {journal}#other  |

  @valkey
  Scenario: A password in the command line works, with a warning that others can see it
    Given a server with a user whose password is "p@ss/w#rd%?&"
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal {whole}"
    Then the exit status is 0
    And standard error says "list of processes"
    And standard error says "RXLANGGRAPH_JOURNAL_PASSWORD"

  Scenario Outline: A password that cannot be read is reported: <what>
    Given the password is in <what>
    When I run "rxlanggraph status redis://127.0.0.1:1/"
    Then the exit status is 2
    And standard error says "<reason>"

    Examples:
      | what                                 | reason                                   |
      | both variables                       | RXLANGGRAPH_JOURNAL_PASSWORD and         |
      | a file that is not there             | cannot read nowhere                      |

  Scenario: A missing folder is named
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --journal no/where"
    Then the exit status is 2
    And standard error says "there is no folder"

  Scenario: status does not suggest that a run be continued
    When I run "rxlanggraph status redis://127.0.0.1:1/"
    Then the exit status is 5
    And standard error says "when it is back, try again"

  Scenario: A driver that finds no library of the system names the extra that brings it
    Given psycopg finds no libpq
    When I run "rxlanggraph status postgresql://127.0.0.1:1/db"
    Then the exit status is 2
    And standard error says "no pq wrapper"
    And standard error says "pip install 'rxlanggraph[postgresql]'"

  Scenario: The exit status shows that a conformance check has failed
    Given a conformance check that fails
    When the conformance checks are run with "memory:"
    Then they end with status 1, and say ""

  Scenario Outline: The conformance checks report what is wrong with "<arguments>"
    When the conformance checks are run with "<arguments>"
    Then they end with status 2, and say "<remedy>"

    Examples:
      | arguments           | remedy                           |
      |                     | arguments are required: url      |
      | nowhere:            | the URL of a state must begin    |
      | shared.db           | for a file write sqlite:///FILE  |
      | memory: nonsense    | no check has 'nonsense'          |
