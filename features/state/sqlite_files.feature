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
