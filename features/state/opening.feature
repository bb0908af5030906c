Feature: A state is opened by its URL, on the loop that uses it

  Scenario Outline: <url> is <what it is>
    When <url> is opened twice at the same time, and written to
    Then what the one has written <is seen> by the other

    Examples:
      | url               | what it is           | is seen     |
      | memory:           | for one block alone  | is not seen |
      | memory:some-name  | shared in a process  | is seen     |
      | sqlite:///FILE    | a file               | is seen     |

  Scenario: A named store in memory is gone when the last state has closed it
    When memory:some-name is opened, written to and closed, and opened again
    Then nothing is there

  Scenario: The attempts given to open_state are the default of add_tasks
    When a state is opened with max_attempts=1, and a task of it fails
    Then the task is a dead letter

  Scenario Outline: Opening <what> is refused, with the reason
    Then open_state(<arguments>) raises <error>, which says "<reason>"

    Examples:
      | what                     | arguments                         | error                | reason         |
      | what is not an address   | "state.db"                        | InvalidArgumentError | postgresql:    |
      | an unknown store         | "mongodb://host/db"               | InvalidArgumentError | 'mongodb'      |
      | a number                 | 7                                 | InvalidTypeError     | url must be    |
      | a namespace with a brace | "memory:", namespace="{a}"        | InvalidArgumentError | namespace      |
      | an empty namespace       | "memory:", namespace=""           | InvalidArgumentError | namespace      |
      | a namespace of bytes     | "memory:", namespace=b"a"         | InvalidTypeError     | namespace      |
      | no attempts              | "memory:", max_attempts=0         | InvalidArgumentError | max_attempts   |
      | half attempts            | "memory:", max_attempts=1.5       | InvalidTypeError     | max_attempts   |
      | a name that is too long  | "memory:" + "x" * 513             | InvalidArgumentError | 512            |
      | a file without a place   | "sqlite:////" + "x" * 300         | InvalidArgumentError | be opened      |

  Scenario Outline: No error shows a password: <url>
    Then <url> cannot be opened, and no error, nor one behind it, shows its password

    Examples:
      | url                                                |
      | mongodb://me:SECRET@host/                          |
      | me:SECRET@host                                     |
      | SECRET@host                                        |
      | sqlite://me:SECRET@host/x                          |
      | postgresql://me:SECRET@[/                          |
      | postgresql://me:SEC@RET@127.0.0.1:1/               |
      | postgresql://me:SEC/RET@127.0.0.1:1/               |
      | postgresql://me:SEC?RET@127.0.0.1:1/               |
      | postgresql://me:SEC%RET@127.0.0.1:1/               |
      | postgresql://me:SEC%00RET@127.0.0.1:1/             |
      | postgresql://me:SECRET                             |
      | postgresql://me:SECRET@127.0.0.1:1/                |
      | postgresql://me:77?RET=SEC@127.0.0.1:1/            |
      | postgresql://me:77?RET@127.0.0.1:1/                |
      | postgresql://[SECRET@127.0.0.1:1/                  |
      | postgresql://[SECRET]@127.0.0.1:1/SECRET           |
      | postgresql:me:SECRET@127.0.0.1:1/                  |
      | postgresql://127.0.0.1:1/?password=SEC%RET         |
      | postgresql://127.0.0.1:1/?password=SEC&RET         |
      | postgresql://127.0.0.1:1/?password=SEC&RET=1       |
      | redis://me:SEC@RET@127.0.0.1:1/                    |
      | redis://me:SEC/RET@127.0.0.1:1/                    |
      | redis://me:SEC#RET@127.0.0.1:1/                    |
      | redis://me:SEC#RET                                 |
      | redis://:SECRET                                    |
      | redis://:SECRET@127.0.0.1:1/                       |
      | redis:me:SECRET@127.0.0.1:1/                       |
      | redis://127.0.0.1:1/?password=SEC&RET=1            |
      | redis://127.0.0.1:1/?password=SECRET               |
      | unix://me:SECRET@/nowhere                          |

  Scenario Outline: Without its packages, <url> names the extra that brings them
    Given a Python without <package>
    When <url> is to be opened
    Then MissingExtraError is raised, which says "pip install 'rxlanggraph[<extra>]'"
    And MissingExtraError is raised, a subclass of ImportError

    Examples:
      | url                    | package    | extra      |
      | postgresql://localhost | psycopg    | postgresql |
      | redis://localhost      | redis      | redis      |

  Scenario: A missing module of rxlanggraph is not reported as a missing extra
    Given a Python without rxlanggraph.state.backends.redis
    When redis://localhost is to be opened
    Then ModuleNotFoundError is raised

  Scenario Outline: Opening that is cancelled <at> closes what was opened
    When opening is cancelled <at>
    Then what was opened is closed

    Examples:
      | at                       |
      | while the server answers |
      | before it has begun      |

  Scenario Outline: The thread of an SQLite file whose opening is cancelled <how> is waited for
    Given the disk does not answer
    When the opening of an SQLite file is cancelled <how>, and then the disk answers
    Then its end was waited for, and the thread of the file has ended quietly

    Examples:
      | how                                |
      | once                               |
      | twice, with all tasks of the loop  |

  Scenario: What open_state returns is a single-use context manager
    When the block of open_state is entered a second time
    Then UsageError is raised, which says "open_state(...)"

  Scenario Outline: Without its block, <call> has no methods, and the error says how to write it
    When the method "get" of what <call> returns is used without a block
    Then AttributeError is raised, which says "<words>"

    Examples:
      | call                  | words                                                            |
      | open_state            | write 'async with open_state(...) as x', and x.get in its block  |
      | open_state_threadsafe | write 'with open_state_threadsafe(...) as x', and x.get in its block |

  Scenario: A background task of a state that fails is reported to the loop
    Given a shared state
    When something of it fails in the background
    Then the loop's exception handler is told

  Scenario: A cancelled close releases the server all the same
    Given a shared state with a call on its way
    When its closing is cancelled
    Then the server was let go of
