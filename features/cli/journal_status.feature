Feature: A journal's status, however long, and of whatever version

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
    And "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run

  Scenario: The table of a status counts all failures, and reads no more of them than a page
    Given 250 more lines of "j" have failed, and 2 have killed their workers
    When I run "rxlanggraph status j", and it is noted how many dead letters are read
    Then standard output says "250 failed, 2 dead"
    And standard output says "and 232 more"
    And no more than 100 dead letters were read

  Scenario: With --watch a status is shown until all is answered
    When I run "rxlanggraph status --watch j"
    Then the exit status is 0
    And standard output says "answered   2 (100%)"

  Scenario: As JSON a status has all failures
    Given 250 more lines of "j" have failed, and 2 have killed their workers
    When I run "rxlanggraph status --json j", and it is noted how many dead letters are read
    Then the data has 250 failed lines and 2 dead letters

  Scenario Outline: A journal whose <part> another version wrote is reported by <command>
    Given another version has written the <part> of "j"
    When I run "rxlanggraph <command>"
    Then the exit status is 2
    And standard error says "written by another version of rxlanggraph"

    Examples:
      | part            | command                                                                   |
      | run             | status j                                                                  |
      | ingest progress | status j                                                                  |
      | run             | run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume      |
      | ingest progress | run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume      |
      | lines           | run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume      |
