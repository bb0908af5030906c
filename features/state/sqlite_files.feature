Feature: A database in SQLite is noticed to be gone, at the cost of one look at its folder
  What breaks without the look: after a file was moved or replaced, its states continue in the old
  one, which no other process reads. A look at each file before each call takes a seventh of it.

  Scenario Outline: A file that was <lost> in a folder that is otherwise quiet is noticed
    Given an empty store in SQLite
    When it is open, its folder does not change for a while, and then the file is <lost>
    Then StateUnavailableError is raised, which says "moved, deleted or replaced"
    And the error leaves no doubt whether the call had an effect

    Examples:
      | lost                                    |
      | moved                                   |
      | replaced                                |
      | replaced, with the times of its folder  |
      | moved with its folder                   |
      | replaced by a link to another           |

  Scenario Outline: Files are looked at <again> where the folder changed <ago> s ago, at <time>
    Given a file in a folder that changed <ago> seconds ago, at <time>
    When it is checked 3 times
    Then the file was looked at <looks> times

    Examples:
      | ago  | time                  | looks | again               |
      | 3600 | a fraction of a second | 1     | once                |
      | 0.2  | a fraction of a second | 1     | once                |
      | 0.05 | a fraction of a second | 3     | again               |
      | -60  | a fraction of a second | 3     | again               |
      | 1.5  | a full second          | 3     | again               |
      | 2.5  | a full second          | 1     | once                |

  Scenario: Files that were opened by a link are looked at each time
    Given a link to a file in another folder
    When it is checked 3 times
    Then the file was looked at 3 times

  Scenario: Files are looked at once more after the folder has changed
    Given a file in a folder that changed 60 seconds ago, at a fraction of a second
    When it is checked 3 times
    And the folder changes, and 60 seconds pass
    And it is checked 3 times
    Then the file was looked at 2 times

  Scenario Outline: Files are looked at <again> where no file was created or deleted and <happens>
    Given a file in a folder that changed 3600 seconds ago, at a fraction of a second
    When it is checked 3 times
    And the clock goes on by <by> seconds
    And it is checked 3 times
    Then the file was looked at <looks> times

    Examples:
      | again     | happens                 | by   | looks |
      | once      | half a second passes    | 0.5  | 1     |
      | once more | a second passes         | 1    | 2     |
      | once more | the clock is set back   | -60  | 2     |

  Scenario Outline: A <file> that is lost while it is opened is an error of shared state
    Given an empty store in SQLite
    And the <file> there is deleted by another program <moment>
    When a state counts there
    Then StateUnavailableError is raised, which says "moved, deleted or replaced"

    Examples:
      | file     | moment                   |
      | database | once SQLite has opened it |
      | -wal     | once SQLite has opened it |

  Scenario: The version of a file is read by a link in another folder, while it is in use
    Given an empty store in SQLite
    When its version is read by a link in another folder, while a state has it open
    Then it is that of this release

  # The files beside it would belong to the reader, who could not delete them: its owner could not
  # write any more.
  Scenario: A file that may only be read is not opened, as files would be left beside it
    Given an empty store in SQLite
    And a state has counted there, and the file may only be read from now on
    When a state counts there
    Then InvalidArgumentError is raised, which says "you may not write to it, as even readers have to"
    And no file was left beside it

  Scenario: A file that may only be read is read while another process has it open
    Given an empty store in SQLite
    And a state has counted there, and the file may only be read from now on
    When its counter is read while another program has it open
    Then the counter is 1

  Scenario: A file in a working directory that was deleted is refused
    When a state counts at sqlite:///state.db after the working directory was deleted
    Then InvalidArgumentError is raised, which says "as the working directory was deleted"
