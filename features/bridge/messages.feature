Feature: A StreamMessage never changes

  Scenario: No field of a message can be written, added or deleted
    Then writing, deleting or adding a field of a message raises AttributeError

  Scenario: Metadata is copied, and read-only from then on
    Then a message made with a dictionary keeps its metadata when its owner changes his
    And a message's metadata cannot be changed

  Scenario: Metadata that was a read-only view of something else is copied too
    Then a message made with a read-only view keeps its metadata when its owner changes his

  Scenario: Ids are unique across threads, and sortable by creation
    When 8 threads make 1000 messages each
    Then all ids differ, and each thread's are in order

  Scenario: Messages are equal if all their fields are equal, and hash by id
    Then messages with equal fields are equal and hash alike, others are not equal

  @once
  Scenario Outline: Messages with contents whose comparison <does> can be compared, and found in collections
    Given two messages with one id whose contents are alike, and their comparison <does>
    Then each equals itself and its copy, and the other only if <equal>
    And each is found in a list, a set and a dictionary that has it

    Examples:
      | does                                   | equal  |
      | raises an error                        | never  |
      | has no truth value                     | never  |
      | has no truth value within a dictionary | never  |
      | has a truth value that is no bool      | always |

  Scenario Outline: A result survives <way> with every field
    Then a result survives <way>

    Examples:
      | way      |
      | pickle   |
      | copy     |
      | deepcopy |

  Scenario Outline: <What> is refused, naming the argument and the value
    When the code under test calls "<call>"
    Then <error> is raised, which says "<words>"

    Examples:
      | What                      | call                               | error                | words                             |
      | A thread_id of a number   | Message(1, thread_id=7)            | InvalidTypeError     | thread_id must be a string or None, not 7 |
      | A thread_id of bytes      | Message(1, b't')                   | InvalidTypeError     | convert it with str()             |
      | An id of a number         | Message(1, id=7)                   | InvalidTypeError     | id must be a string, not 7        |
      | Metadata in a list        | Message(1, metadata=[1])           | InvalidTypeError     | metadata must be a mapping, not [1] |
      | An unknown status         | Message(1, status='fine')          | InvalidArgumentError | not 'fine'                        |
      | A status in a list        | Message(1, status=['ok'])          | InvalidArgumentError | not ['ok']                        |
      | An error as text          | Message(1, error='late')           | InvalidTypeError     | error must be an exception        |

  Scenario Outline: raise_for_status of a message with the status <status> <outcome>
    Then raise_for_status with the status <status> <outcome>

    Examples:
      | status      | outcome                   |
      | ok          | returns the message       |
      | interrupted | returns the message       |
      | cancelled   | raises RunCancelledError  |
      | timed_out   | raises RunTimeoutError    |
      | rejected    | raises RunRejectedError   |
      | error       | raises RunError           |

  Scenario: raise_for_status raises the very exception that the graph raised
    Given an open bridge on its own loop
    When a message goes to a failing graph with errors="emit"
    Then raise_for_status of its result raises that error itself

  Scenario: An item that is not a message is wrapped as content; a message is used as it is
    Given an open bridge on its own loop
    Then None, 0, a list and a message are each answered with the same content

  Scenario: A failed result that is put on another thread keeps its error and its duration
    Then a failed result put on another thread is the same but for the thread

  Scenario: The text of a failed result shows its error
    Then the text of a failed result shows its status and its error
