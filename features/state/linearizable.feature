Feature: Concurrent operations on a key are linearizable: each takes effect at one moment

  Clients in processes of their own do what they like with the same keys, cancel some of it on its
  way, and write down what they were answered and when. From what they wrote a checker finds out
  whether the operations can have taken effect one after the other (features/support/linearizability/linearizability.py).

  # -- the checker ---------------------------------------------------------------------------------

  Scenario Outline: The checker accepts <a history>
    Given the history of a <kind>, <a history>
      """
      <first>
      <second>
      <third>
      """
    Then it is linearizable

    Examples:
      | a history                                         | kind     | first                              | second                             | third                           |
      | one after the other                               | counter  | 1-2 increment_counter 1 -> 1       | 3-4 increment_counter 1 -> 2       | 5-6 get -> [2, 9]               |
      | the later call first                              | counter  | 1-9 increment_counter 1 -> 2       | 2-8 increment_counter 1 -> 1       | 3-4 get -> [0, 0]               |
      | in doubt, and it took effect late                 | counter  | 1-? increment_counter 5            | 2-3 get -> [null, 0]               | 4-5 get -> [5, 9]               |
      | in doubt, and it never took effect                | counter  | 1-? increment_counter 5            | 2-3 increment_counter 1 -> 1       | 4-5 get -> [1, 9]               |
      | two readers that see a write at different moments | register | 1-9 set "a" -> 7                   | 2-3 get -> [null, 0]               | 4-5 get -> ["a", 7]             |
      | a version that a reader is the first to be told   | register | 1-2 compare_and_set "a" 0 -> true  | 3-4 get -> ["a", 7]                | 5-6 set "b" -> 8                |
      | one of two compare-and-sets                       | register | 1-9 compare_and_set "a" 0 -> false | 2-8 compare_and_set "b" 0 -> true  | 3-4 get -> ["b", 7]             |
      | a compare-and-set in doubt that has succeeded     | register | 1-? compare_and_set "a" 0          | 2-3 compare_and_set "b" 0 -> false | 4-5 delete -> true              |

  Scenario Outline: The checker rejects <a history>
    Given the history of a <kind>, <a history>
      """
      <first>
      <second>
      <third>
      """
    Then it is not linearizable

    Examples:
      | a history                                         | kind     | first                             | second                             | third                 |
      | a lost increment                                  | counter  | 1-9 increment_counter 1 -> 1      | 2-8 increment_counter 1 -> 1       | 10-11 get -> [1, 9]   |
      | an answer from before                             | counter  | 1-2 increment_counter 1 -> 2      | 3-4 increment_counter 1 -> 1       | 5-6 get -> [2, 9]     |
      | an increment in doubt that counted twice          | counter  | 1-? increment_counter 5           | 2-3 get -> [5, 8]                  | 4-5 get -> [10, 9]    |
      | an increment in doubt that was seen, and is gone  | counter  | 1-? increment_counter 5           | 2-3 get -> [5, 9]                  | 4-5 get -> [0, 0]     |
      | an increment in doubt that counted before it came | counter  | 1-2 get -> [5, 9]                 | 3-? increment_counter 5            | 4-5 get -> [5, 9]     |
      | a value that was never set                        | register | 1-9 set "a" -> 7                  | 2-3 get -> ["b", 7]                | 4-5 get -> ["a", 7]   |
      | a reader that is late                             | register | 1-2 set "a" -> 7                  | 3-4 set "b" -> 8                   | 5-6 get -> ["a", 7]   |
      | a second reader who sees less than the first      | register | 1-9 set "a" -> 7                  | 2-3 get -> ["a", 7]                | 4-5 get -> [null, 0]  |
      | two compare-and-sets of which one had to fail     | register | 1-9 compare_and_set "a" 0 -> true | 2-8 compare_and_set "b" 0 -> true  | 10-11 get -> ["b", 7] |
      | a compare-and-set that had to succeed             | register | 1-2 set "a" -> 7                  | 3-4 compare_and_set "b" 7 -> false | 5-6 get -> ["a", 7]   |
      | a version from before, after a deletion           | register | 1-2 set "a" -> 7                  | 3-4 delete -> true                 | 5-6 set "b" -> 7      |
      | two deletions of one value                        | register | 1-2 set "a" -> 7                  | 3-9 delete -> true                 | 4-8 delete -> true    |

  @once
  Scenario: The checker agrees with trying all orders
    When 1000 short histories are made up by chance, and looked at in both ways
    Then both ways say the same of each
    And there are more than 100 of either kind

  # -- the stores ----------------------------------------------------------------------------------

  Scenario Outline: Concurrent operations on <backend> are linearizable
    Given an empty store in <backend>
    When 4 clients in <places> make 2 times 100 operations each
    Then the history of each key is linearizable
    And it has operations at the same time, and some in doubt

    Examples:
      | backend | places    |
      | memory  | threads   |
      | SQLite  | processes |

    @postgresql
    Examples:
      | backend    | places    |
      | PostgreSQL | processes |

    @valkey
    Examples:
      | backend | places    |
      | Valkey  | processes |

  Scenario Outline: Operations on <backend> are linearizable though it is killed and started again
    Given a <backend> server that can be killed
    When 4 clients in processes make 2 times 60 operations each, and in between the server is killed and started again
    Then the history of each key is linearizable
    And it has operations at the same time, and some in doubt

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario: Operations on Valkey are linearizable though it executes abandoned calls late
    Given a Valkey server that can be killed
    When 4 clients in processes make 2 times 60 operations each, and in between the server says nothing until each of them has given up
    Then the history of each key is linearizable
    And it has operations at the same time, and some in doubt

  # -- the naive way -------------------------------------------------------------------------------

  @valkey
  Scenario Outline: Operations of 3 clients of <a way> that, at the same moment, <act>, are linearizable
    Given an empty store in Valkey
    When 3 clients of <a way>, at the same moment, <act>
    Then the history of each key is linearizable

    Examples:
      | a way     | act                     |
      | the state | increment a counter     |
      | the state | compare and set a value |

    @tdd_expected_fail
    Examples: naive: get, then set
      | a way        | act                     |
      | get-then-set | increment a counter     |
      | get-then-set | compare and set a value |
