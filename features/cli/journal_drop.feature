@once
Feature: rxlanggraph journal drop deletes a journal, and nothing else

  Background:
    Given a folder with the file "graphs.py"
      """
      import os

      def double(content):
          if content["n"] == 2 and not os.path.exists("mended"):
              raise ValueError("no")
          return content["n"] * 2
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3}
      """

  Scenario: A journal that was dropped is none any more, and its name can be used again
    Given "rxlanggraph run graphs.py:double -i in.jsonl -o out.jsonl --journal j" has run
    When I run "rxlanggraph journal drop j --dry-run"
    Then the exit status is 0
    And standard output says "would drop the journal j with 3 lines"
    When I run "rxlanggraph status j"
    Then the exit status is 0
    When I run "rxlanggraph journal drop j"
    Then the exit status is 0
    And standard output says "dropped the journal j with 3 lines; the file itself is left"
    When I run "rxlanggraph status j"
    Then the exit status is 2
    And standard error says "is not a journal"
    When I run "rxlanggraph state --namespace journal:run j keys --json"
    Then its JSON has 0 lines
    When I run "rxlanggraph run graphs.py:double -i in.jsonl -o again.jsonl --journal j"
    Then the lines of "again.jsonl" are "1, 2, 3" in any order

  Scenario Outline: Other journals on the same server are left, in <backend>
    Given an empty store in <backend>
    And two journals there, called one and other
    When "rxlanggraph journal drop URL#one" is run there
    Then the exit status is 0
    When "rxlanggraph status URL#one" is run there
    Then the exit status is 2
    When "rxlanggraph status URL#other" is run there
    Then the exit status is 0
    And standard output says "answered   3 (100%)"

    @postgresql
    Examples:
      | backend    |
      | PostgreSQL |

    @valkey
    Examples:
      | backend |
      | Valkey  |

  Scenario: A journal whose messages are in flight is dropped only by force
    Given "rxlanggraph run graphs.py:double -i in.jsonl -o out.jsonl --journal j" has run
    And another process works on a line of "j"
    When I run "rxlanggraph journal drop j"
    Then the exit status is 2
    And standard error says "in flight, at elsewhere"
    And standard error says "if they have died, wait until their leases expire"
    When I run "rxlanggraph journal drop j --force --json"
    Then the exit status is 0
    And standard output says ""lines": 3, "unanswered": 1"

  Scenario: A journal that is half dropped is not continued, and can be dropped again
    Given "rxlanggraph run graphs.py:double -i in.jsonl -o out.jsonl --journal j" has run
    And the dropping of "j" has ended in the middle
    When I run "rxlanggraph run graphs.py:double -i in.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 2
    And standard error says "is being dropped"
    When I run "rxlanggraph journal drop j"
    Then the exit status is 0
    When I run "rxlanggraph status j"
    Then the exit status is 2
    And standard error says "is not a journal"

  Scenario: What is not a journal is left as it is
    Given another program's SQLite file, called "other"
    When I run "rxlanggraph journal drop other"
    Then the exit status is 2
    And standard error says "is not a journal"
    And the folder is as it was

  Scenario: A line that was cancelled from outside has a record that says so
    Given "rxlanggraph run graphs.py:double -i in.jsonl -o out.jsonl --journal j" has run
    When I run "rxlanggraph state --journal j requeue lines --all"
    And the task of line 2 of "j" is cancelled by the command
    And I run "rxlanggraph run graphs.py:double -i in.jsonl -o made.jsonl --journal j --resume"
    Then the exit status is 1
    And "made.jsonl" has these records in any order
      | line | status    | content |
      | 1    | ok        | 2       |
      | 2    | cancelled | null    |
      | 3    | ok        | 6       |

  Scenario: status of a journal of the first version does not migrate it
    Given a journal of the first version, with two failed lines
    When I run "rxlanggraph status run.db"
    Then the exit status is 0
    And standard output says "3 ok, 2 failed"
    And the version of "run.db" is still the first one
