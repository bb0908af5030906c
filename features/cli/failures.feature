@once
Feature: The failures of a run can be diagnosed

  A failed line tells which node raised what, and how its attempts went; `rxlanggraph errors` groups
  thousands of them.

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio, logging
      from typing import TypedDict
      from langgraph.graph import START, StateGraph

      class State(TypedDict):
          n: int

      same = ConnectionError("always the same one")
      tried = set()

      def check(state: State) -> State:
          n = state["n"]
          if n == 0:
              raise ValueError("no price for 0")
          if n < 0:
              raise LookupError(f"order {-n * 1000} of 3f2b8a1c-0d1e-4f5a-8b7c-{-n:012d} is gone")
          if n == 100:
              raise same
          if n == 200 and n not in tried:
              tried.add(n)
              raise TimeoutError("the first time")
          logging.getLogger("shop").info("price of %s", n)
          return state

      inner = StateGraph(State).add_node("check", check).add_edge(START, "check").compile()
      graph = StateGraph(State).add_node("order", inner).add_edge(START, "order").compile()

      async def divide(content):
          return 12 // content["n"]

      async def endless(content):
          await asyncio.Event().wait()

      endless_inner = StateGraph(State).add_node("price", endless).add_edge(START, "price").compile()
      stuck = StateGraph(State).add_node("order", endless_inner).add_edge(START, "order").compile()
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 0}
      {"n": -7}
      nonsense
      {"n": -8}
      {"n": 0}
      """

  Scenario Outline: The record of a failed line has the type, the message and the failing node<with>
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl <options>"
    Then "out.jsonl" has these records in any order
      | line | status  | error.type  | error.message                                               | error.node    |
      | 1    | ok      | null        | null                                                        | null          |
      | 2    | error   | ValueError  | no price for 0                                              | order\|check  |
      | 3    | error   | LookupError | order 7000 of 3f2b8a1c-0d1e-4f5a-8b7c-000000000007 is gone  | order\|check  |
      | 4    | invalid | InvalidLine | not JSON: Expecting value at column 1                       | null          |
      | 5    | error   | LookupError | order 8000 of 3f2b8a1c-0d1e-4f5a-8b7c-000000000008 is gone  | order\|check  |
      | 6    | error   | ValueError  | no price for 0                                              | order\|check  |
    And no error in "out.jsonl" has a traceback

    Examples:
      | with             | options              |
      |                  |                      |
      | , with a journal | --journal run.sqlite |

  Scenario Outline: With --tracebacks an error has its traceback<with>
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --tracebacks <options>"
    Then the traceback of line 2 in "out.jsonl" has "graphs.py and in check and ValueError: no price for 0"

    Examples:
      | with             | options              |
      |                  |                      |
      | , with a journal | --journal run.sqlite |

  Scenario Outline: A record has the number of attempts, and the errors of the earlier ones<with>
    Given the file "in.jsonl"
      """
      {"n": 200}
      {"n": 0}
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --retries 1 <options>"
    Then "out.jsonl" has these records in any order
      | line | status | attempts | earlier_errors                                                                   |
      | 1    | ok     | 2        | [{"type": "TimeoutError", "message": "the first time", "node": "order\|check"}] |
      | 2    | error  | 2        | [{"type": "ValueError", "message": "no price for 0", "node": "order\|check"}]   |
      | 3    | ok     | null     | null                                                                             |

    Examples:
      | with             | options              |
      |                  |                      |
      | , with a journal | --journal run.sqlite |

  Scenario: `rxlanggraph status` counts the same attempts as the record
    Given the file "in.jsonl"
      """
      {"n": 0}
      """
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --retries 1 --journal run.sqlite"
    And I run "rxlanggraph status run.sqlite"
    Then the output has a row "1 error 2 * ValueError: no price for 0"

  Scenario: An exception that is raised again and again names its node once
    Given the file "in.jsonl"
      """
      {"n": 100}
      {"n": 100}
      """
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl --ordered -j 1"
    Then the output has these records in any order
      | line | error.node    |
      | 1    | order\|check  |
      | 2    | order\|check  |

  Scenario Outline: --timeout limits each attempt, --deadline all of them together<with>
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:endless -i in.jsonl -o out.jsonl --timeout 0.05 --retries 2 <options>"
    Then "out.jsonl" has these records in any order
      | line | status    | attempts |
      | 1    | timed_out | 3        |
    When I run "rxlanggraph run graphs.py:endless -i in.jsonl -o out2.jsonl --deadline 0.05 --retries 1000000 <again>"
    Then the record of line 1 in "out2.jsonl" says "within 0.05 s of its beginning" and "endless"

    Examples:
      | with             | options           | again             |
      |                  |                   |                   |
      | , with a journal | --journal a.sqlite | --journal b.sqlite |

  Scenario Outline: The record of a line whose time was over has the node that it was in<with>
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """
    When I run "rxlanggraph run graphs.py:stuck -i in.jsonl -o out.jsonl --timeout 0.5 --retries 1 <options>"
    Then "out.jsonl" has these records in any order
      | line | status    | error.node   | attempts |
      | 1    | timed_out | order\|price | 2        |
      | 2    | timed_out | order\|price | 2        |
    When I run "rxlanggraph errors <source>"
    Then the output has a row "2 timed_out RunTimeoutError order|price the run of message * 1, 2"

    Examples:
      | with             | options              | source     |
      |                  | --ordered            | out.jsonl  |
      | , with a journal | --ordered --journal run.sqlite | run.sqlite |

  Scenario: --verbose logs failed attempts and lines, and what the graph logs
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 200}
      {"n": 0}
      """
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --retries 1 --verbose"
    Then standard error says "line 2: attempt 1 failed, another follows: TimeoutError: the first time (node order|check)"
    And standard error says "line 3: error: ValueError: no price for 0 (node order|check)"
    And standard error says "shop: price of 1"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl"
    Then standard error is one line that says "read 3", "1 ok" and "2 failed"

  # -- errors ------------------------------------------------------------------------------------

  Scenario Outline: rxlanggraph errors groups the failures of <source> by type, node and message
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl <options>"
    And I run "rxlanggraph errors <source>"
    Then the exit status is 0
    And the output has a row "2 error LookupError order|check order <n> of <id> is gone 3, 5"
    And the output has a row "2 error ValueError order|check no price for <n> 2, 6"
    When I run "rxlanggraph errors <source> --json"
    Then the output as JSON has these groups, beside invalid lines
      | count | status | type        | node          | message                       | example                                                    | lines  |
      | 2     | error  | ValueError  | order\|check  | no price for <n>              | no price for 0                                             | [2, 6] |
      | 2     | error  | LookupError | order\|check  | order <n> of <id> is gone     | order 7000 of 3f2b8a1c-0d1e-4f5a-8b7c-000000000007 is gone | [3, 5] |

    Examples:
      | source     | options                        |
      | out.jsonl  | --ordered                      |
      | run.sqlite | --ordered --journal run.sqlite |

  Scenario: The first lines of a group are named, and the others counted
    Given 100 lines in "in.jsonl", of which each second fails with "divide"
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered"
    And I run "rxlanggraph errors out.jsonl"
    Then the output has a row "50 error ZeroDivisionError - * 1, 3, 5, 7, 9, ..."

  Scenario: Records come from standard input too; a run without failures has no groups
    Given standard input
      """
      {"line": 1, "status": "ok", "error": null}
      """
    When I run "rxlanggraph errors -"
    Then the exit status is 0
    And the output says "no failures among 1 record"

  Scenario: Control characters of a message are escaped
    Given standard input
      """
      {"line": 1, "status": "error", "error": {"type": "E", "message": "a bell \u0007, red \u001b[31m", "node": null}}
      """
    When I run "rxlanggraph errors -"
    Then the output says "a bell \x07, red \x1b[31m"

  Scenario Outline: <what> is refused with a remedy
    Given the file "file"
      """
      <content>
      """
    When I run "rxlanggraph errors <name>"
    Then the exit status is 2
    And standard error says "<problem>"
    And standard error says "<remedy>"

    Examples:
      | what                          | name    | content          | problem           | remedy                |
      | A file that is not there      | nowhere | x                | cannot read       | give a readable file  |
      | A line that is not a record   | file    | {"n": 1}         | file, line 1      | rxlanggraph run       |
      | A line that is not JSON       | file    | nonsense         | file, line 1      | rxlanggraph run       |
      | An error that is not a record | file    | {"line": 1, "status": "error", "error": "x"} | file, line 1 | rxlanggraph run |
      | A type that is not text       | file    | {"line": 1, "status": "error", "error": {"type": 5, "message": "x"}} | file, line 1 | rxlanggraph run |

  Scenario Outline: In a message <text> is shown as <normal>
    Then the message "<text>" is grouped as "<normal>"

    Examples:
      | text                                                 | normal                    |
      | at 0x7f3a2b4c5d6e                                    | at <id>                   |
      | req_011CSHoEeqs5C35K2UUqR7Fy failed                  | <id> failed               |
      | took 12.5 s, not 3                                   | took <n> s, not <n>       |
      | 3F2B8A1C-0D1E-4F5A-8B7C-000000000007                 | <id>                      |
      | commit deadbeef12 of main                            | commit <id> of main       |
      | 2026-11-24T13:01:31Z is over                         | <time> is over            |
      | model gpt4 and utf8                                  | model gpt4 and utf8       |
      | a defaced facade                                     | a defaced facade          |
