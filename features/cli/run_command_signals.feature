Feature: rxlanggraph run can be stopped at any time without losing results

  The graph of these scenarios says on standard error when it has started, and then waits until it is
  let go. Standard input stays open, so that the command is reading when the signal comes.

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio, sys

      def waits(content):
          if content["wait"]:
              print("started", file=sys.stderr, flush=True)
              with open("gate") as gate:
                  gate.read()
          return content["n"]

      async def endless(content):
          if content["wait"]:
              print("started", file=sys.stderr, flush=True)
              await asyncio.Event().wait()
          return content["n"]
      """

  Scenario Outline: The first <signal> drains: nothing more is read, runs in flight end
    Given "rxlanggraph run graphs.py:waits --input -" is running on lines that stay open
      """
      {"n": 1, "wait": false}
      {"n": 2, "wait": true}
      """
    When it has written 1 record and started 1 run
    And it gets SIG<signal>
    Then it says "draining"
    When the waiting run is let go
    Then it ends with status <status>
    And its records are
      | line | status |
      | 1    | ok     |
      | 2    | ok     |
    And it says "read 2: 2 ok, 0 failed, 0 invalid, 0 not run"
    And it printed no traceback

    Examples:
      | signal | status |
      | INT    | 130    |
      | TERM   | 143    |

  Scenario Outline: The runs in flight that SIG<signal> reports are counted after the input has been stopped
    When a run that takes in a line whenever something is printed gets SIG<signal>
    Then the lines that it says to be on the way are all that it has taken in

    Examples:
      | signal |
      | INT    |
      | TERM   |

  Scenario: The second Ctrl-C cancels the runs in flight, which have records too
    Given "rxlanggraph run graphs.py:endless --input -" is running on lines that stay open
      """
      {"n": 1, "wait": false}
      {"n": 2, "wait": true}
      """
    When it has written 1 record and started 1 run
    And it gets SIGINT
    Then it says "draining"
    When it gets SIGINT
    Then it ends with status 130
    And its records are
      | line | status    |
      | 1    | ok        |
      | 2    | cancelled |
    And it says "1 ok, 0 failed, 0 invalid, 1 cancelled, 0 not run"
    And it printed no traceback

  Scenario: Code that cannot be cancelled is named and left behind
    Given "rxlanggraph run graphs.py:waits --input -" is running on lines that stay open
      """
      {"n": 1, "wait": true}
      """
    And cancelling is given up after a moment
    When it has written 0 records and started 1 run
    And it gets SIGINT
    Then it says "draining"
    When it gets SIGINT
    Then it ends with status 130
    And it says "left behind: waits"
    And its records are
      | line | status    |
      | 1    | cancelled |
    And it printed no traceback

  Scenario: Ctrl-C while the graph is still being imported prints no traceback either
    Given the file "slow.py"
      """
      import sys
      print("started", file=sys.stderr, flush=True)
      while True:  # not blocked: Python sees a signal that comes just before only afterwards
          pass
      """
    And "rxlanggraph run slow.py:graph --input -" is running on lines that stay open
      """
      """
    When it has written 0 records and started 1 run
    And it gets SIGINT
    Then it ends with status 130
    And it printed no traceback

  Scenario: Ctrl-C while a slow disk opens the journal prints one line, and nothing else
    Given the file "in.jsonl"
      """
      {"n": 1, "wait": false}
      """
    And "rxlanggraph run graphs.py:waits --input in.jsonl --journal j" is running on lines that stay open
      """
      """
    And its disk is slow
    When it has written 0 records and started 1 run
    And it gets SIGINT
    Then it ends with status 130
    And it has said "started", "rxlanggraph: interrupted" and nothing else

  Scenario: A message that waits for its turn under --rate is counted as not run
    Given "rxlanggraph run graphs.py:waits --input - --rate 1/h" is running on lines that stay open
      """
      {"n": 1, "wait": false}
      {"n": 2, "wait": false}
      """
    And it tells of each line that has to wait for its turn
    When it has written 1 record and started 0 runs
    And 2 lines have had to wait for their turn
    And it gets SIGINT
    Then it ends with status 130
    And it says "read 2: 1 ok, 0 failed, 0 invalid, 1 not run"
    And it says "without a record: line 2 of standard input"
    And it printed no traceback
