Feature: rxlanggraph run takes a file of messages through a graph and loses none

  Every line of the input has one record in the end, and the summary and the exit status say what
  became of them.

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio, dataclasses, datetime
      from langchain_core.messages import AIMessage
      from langgraph.checkpoint.memory import InMemorySaver
      from langgraph.graph import END, START, StateGraph
      from langgraph.types import Interrupt, interrupt
      from typing import TypedDict

      class State(TypedDict):
          n: int

      def node(state: State) -> State:
          return state

      builder = StateGraph(State).add_node(node).add_edge(START, "node").add_edge("node", END)
      compiled = builder.compile(checkpointer=InMemorySaver())
      on_thread = compiled.with_config({"configurable": {"thread_id": "all"}})
      on_number = compiled.with_config({"configurable": {"thread_id": 7}})

      async def double(content):
          return content["n"] * 2

      async def divide(content):
          return 12 // content["n"]

      async def reversing(content):
          await asyncio.sleep(0.05 - content["n"] / 100)
          return content["n"]

      async def endless(content):
          await asyncio.Event().wait()

      tries = set()
      async def second_try(content):
          if content["n"] not in tries:
              tries.add(content["n"])
              raise ConnectionError("not now")
          return content["n"]

      @dataclasses.dataclass
      class Point:
          x: int

      class Unspeakable(Exception):
          def __str__(self):
              raise self.args[0]

      async def rich(content):
          if content["n"] == 1:
              return {"message": AIMessage("hello"), "at": datetime.date(2026, 1, 2), "p": Point(3)}
          if content["n"] == 2:
              return {"b": b"\xff", "f": float("inf"), "s": {1}}
          if content["n"] == 3:
              return object()
          if content["n"] == 4:
              return "\ud800"
          raise Unspeakable(RuntimeError if content["n"] == 5 else SystemExit)

      def asking(state: State) -> State:
          if state["n"]:
              interrupt({"refund": state["n"]})
          return state

      async def asking_oddly(content):
          return {"__interrupt__": [Interrupt(object(), id="an id")]}

      builder = StateGraph(State).add_node(asking).add_edge(START, "asking")
      waiting_graph = builder.compile(checkpointer=InMemorySaver())

      def chatty(content):
          print("this is not a record")
          return content["n"]

      number = 7
      class Nested:
          graph = staticmethod(double)
      """

  # -- what comes out --------------------------------------------------------------------------

  Scenario: Each line of JSON has a record of its outcome
    Given the file "in.jsonl"
      """
      {"n": 1}

      {"n": 2}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl --output out.jsonl"
    Then the exit status is 0
    And "out.jsonl" has these records in any order
      | line | status | content | thread_id | error |
      | 1    | ok     | 2       | null      | null  |
      | 3    | ok     | 4       | null      | null  |
    And every record in "out.jsonl" has the keys "line, id, thread_id, status, content, error, duration"
    And the summary says "read 2: 2 ok, 0 failed, 0 invalid, 0 not run" and "out.jsonl"

  @once
  Scenario: The airports' running survey equals plain Python's, record by record
    When I run the example over all airports
    Then the exit status is 0
    And there are 3376 records, each equal to what plain Python computes from the file

  Scenario: With --ordered the records come in the order of the input, invalid lines too
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      nonsense
      {"n": 3}
      nonsense
      """
    When I run "rxlanggraph run graphs.py:reversing --input in.jsonl --ordered"
    Then the exit status is 1
    And the output's records have the lines "1, 2, 3, 4, 5"

  Scenario: LangChain messages, dataclasses and dates become JSON; what cannot is a failed result
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3}
      {"n": 4}
      {"n": 5}
      {"n": 6}
      """
    When I run "rxlanggraph run graphs.py:rich --input in.jsonl --ordered"
    Then the exit status is 1
    And the output's record of line 1 has the text "hello" at "content.message.content"
    And the output's record of line 1 has the text "2026-01-02" at "content.at"
    And the output's record of line 2 has the text "Infinity" at "content.f"
    And the output's record of line 3 is "error": "cannot be written as JSON" and "object"
    And the output's record of line 3 has the text "UnserializableResult" at "error.type"
    And the output's record of line 4 is "error": "cannot be written as JSON" and "surrogates"
    And the output's record of line 5 is "error": "its __str__ raised RuntimeError" and "its"
    And the output's record of line 6 is "error": "its __str__ raised SystemExit" and "its"
    And the summary says "read 6: 2 ok, 4 failed" and "standard output"

  Scenario: A line whose graph asks is interrupted, with its questions; the next of its thread is refused
    Given the file "in.jsonl"
      """
      {"n": 1, "t": "a"}
      {"n": 2, "t": "a"}
      {"n": 0, "t": "b"}
      """
    When I run "rxlanggraph run graphs.py:waiting_graph --input in.jsonl --thread-key t -o out.jsonl --errors err.jsonl"
    Then the exit status is 1
    And "out.jsonl" has these records in any order
      | line | status | content  |
      | 3    | ok     | {"n": 0} |
    And "err.jsonl" has these records in any order
      | line | status      | thread_id | interrupts.0.value | interrupts.0.response_schema | error.type              |
      | 1    | interrupted | "a"       | {"refund": 1}      | null                         | null                    |
      | 2    | rejected    | "a"       | null               | null                         | "PendingInterruptError" |
    And the summary says "read 3: 1 ok, 2 failed, 0 invalid, 0 not run" and "failures in err.jsonl"

  Scenario: A question that cannot be written as JSON can still be answered by its id
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:asking_oddly --input in.jsonl"
    Then the output has these records in any order
      | line | status      | interrupts.0.id | error.type             |
      | 1    | interrupted | an id           | "UnserializableResult" |

  Scenario: Output that a graph prints is not among the records
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:chatty --input in.jsonl"
    Then the output's records have the lines "1"
    And standard error says "this is not a record"

  Scenario: --quiet prints only errors
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl -o out.jsonl --quiet"
    Then the exit status is 0
    And standard error is empty

  Scenario: Without a terminal progress is printed in lines
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """
    And progress is said at every opportunity
    When I run "rxlanggraph run graphs.py:double --input in.jsonl -o out.jsonl"
    Then standard error matches "2 read, 0 queued, 0 running, 2 done \([\d,]+/s\), 0 failed; about 100% done"

  Scenario: Progress over a pipe claims no share and no time left
    Given standard input
      """
      {"n": 1}
      """
    And progress is said at every opportunity
    When I run "rxlanggraph run graphs.py:double --input - -o out.jsonl"
    Then standard error matches "1 read, 0 queued, 0 running, 1 done \([\d,]+/s\), 0 failed\n"

  Scenario Outline: The time left follows from the lines done, not from the bytes read: <what>
    Given an input of 1000 bytes, and progress that is printed after 10 seconds
    When <bytes> bytes, <read> lines are read, of which <running> are running and <done> are done
    Then the progress says "<text>"

    Examples:
      | what                          | bytes | read | running | done | text                                                                                         |
      | all is read and none is done  | 1000  | 40   | 32      | 0    | 40 read, 8 queued, 32 running, 0 done (0/s), 0 failed                                        |
      | all is read and half is done  | 1000  | 40   | 15      | 20   | 40 read, 5 queued, 15 running, 20 done (2/s), 0 failed; about 50% done, 10 s left            |
      | a tenth is read               | 100   | 40   | 20      | 20   | 40 read, 0 queued, 20 running, 20 done (2/s), 0 failed; about 5% done, 3 min left            |
      | nothing is read               | 0     | 0    | 0       | 0    | 0 read, 0 queued, 0 running, 0 done (0/s), 0 failed                                          |
      | more is read than its size    | 2000  | 40   | 10      | 30   | 40 read, 0 queued, 10 running, 30 done (3/s), 0 failed; about 75% done, 3 s left             |
      | a long way is left            | 10    | 1    | 0       | 1    | 1 read, 0 queued, 0 running, 1 done (0.1/s), 0 failed; about 1% done, 16 min left            |

  Scenario: On a terminal progress is a bar
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl -o out.jsonl" on a terminal
    Then the exit status is 0
    And standard error matches "read .* queued .* running .* done .*━.* failed"

  Scenario: On a terminal the bar of a pipe shows the time that has passed
    When I run "rxlanggraph run graphs.py:double --input - -o out.jsonl" on a terminal
    Then the exit status is 0
    And standard error matches "0:00:\d\d"

  # -- what goes in ------------------------------------------------------------------------------

  Scenario: Invalid lines go to the errors file with number, text and reason; the good ones run
    Given the file "in.jsonl" with the bytes
      """
      \xef\xbb\xbf{"n": 1}\n{"n": 2\n{"n": 3, "t": "\xff"}\n{"n": 0}\n\n{"n": 4}\r\n
      """
    When I run "rxlanggraph run graphs.py:divide --input in.jsonl -o out.jsonl --errors err.jsonl"
    Then the exit status is 1
    And "out.jsonl" has these records in any order
      | line | status | content |
      | 1    | ok     | 12      |
      | 6    | ok     | 3       |
    And "err.jsonl" has these records in any order
      | line | status  | content | raw                              | error.type          |
      | 2    | invalid | null    | "{\"n\": 2"                      | "InvalidLine"       |
      | 3    | invalid | null    | "{\"n\": 3, \"t\": \"\\udcff\"}" | "InvalidLine"       |
      | 4    | error   | null    | "{\"n\": 0}"                     | "ZeroDivisionError" |
    And the record of line 2 in "err.jsonl" says "not JSON" and "column"
    And the record of line 3 in "err.jsonl" says "not UTF-8: byte 0xff" and "convert it"
    And the summary says "read 5: 2 ok, 1 failed, 2 invalid, 0 not run" and "failures in err.jsonl"

  Scenario: Text beyond ASCII is kept
    Given the file "in.jsonl"
      """
      {"n": "Þórshöfn ✈ "}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl"
    Then the output has these records in any order
      | line | status | content                    |
      | 1    | ok     | "Þórshöfn ✈ Þórshöfn ✈ " |

  Scenario: A line too long for memory is skipped as invalid
    Given lines longer than 32 bytes count as too long
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2, "text": "far too long to be taken in whole"}
      {"n": 3}
      {"n": 4, "text": "far too long, and the last one"}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl --ordered"
    Then the output's records have the lines "1, 2, 3, 4"
    And the output's record of line 2 is "invalid": "longer than" and "start"
    And the output's record of line 4 is "invalid": "longer than" and "start"

  Scenario: A stray quote in CSV costs its own line and no other
    Given the file "in.csv"
      """
      n,text
      1,"two
      lines"
      2,"never closed
      3,short,long
      4,fine
      5
      """
    When I run "rxlanggraph run graphs.py:Nested.graph --input in.csv --ordered"
    Then the exit status is 1
    And the output has these records in any order
      | line | status  | content |
      | 2    | ok      | "11"    |
      | 4    | invalid | null    |
      | 5    | invalid | null    |
      | 6    | ok      | "44"    |
      | 7    | invalid | null    |
    And the output's record of line 4 is "invalid": "not CSV" and "unexpected end"
    And the output's record of line 5 is "invalid": "3 fields" and "header has 2"
    And the output's record of line 7 is "invalid": "1 field," and "header has 2"

  Scenario: CSV comes from standard input with --format
    Given standard input
      """
      n
      5
      """
    When I run "rxlanggraph run graphs.py:double --input - --format csv"
    Then the output has these records in any order
      | line | status | content |
      | 2    | ok     | "55"    |

  Scenario Outline: An empty input is not a failure
    Given the file "<file>" with the bytes
      """
      <bytes>
      """
    When I run "rxlanggraph run graphs.py:double --input <file>"
    Then the exit status is 0
    And the summary says "read 0: 0 ok" and "0 not run"

    Examples:
      | file     | bytes |
      | in.jsonl |       |
      | in.jsonl | \n \n |
      | in.csv   |       |
      | in.csv   | n\n   |

  Scenario: A message whose thread cannot be determined is an invalid line
    Given the file "in.jsonl"
      """
      {"n": 1, "t": "a"}
      {"n": 2, "t": 7}
      {"n": 3}
      {"n": 4, "t": null}
      {"n": 5, "t": ""}
      6
      {"n": 7, "t": "\ud800"}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl --thread-key t"
    Then the output has these records in any order
      | line | status  | thread_id |
      | 1    | ok      | "a"       |
      | 2    | ok      | "7"       |
      | 3    | invalid | null      |
      | 4    | invalid | null      |
      | 5    | invalid | null      |
      | 6    | invalid | null      |
      | 7    | invalid | null      |
    And the output's record of line 3 is "invalid": "--thread-key t" and "no such field"
    And the output's record of line 6 is "invalid": "--thread-key t" and "not a JSON object"

  Scenario: A graph that is bound to a thread needs no --thread-key, and every record has the thread
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """
    When I run "rxlanggraph run graphs.py:on_thread --input in.jsonl"
    Then the output has these records in any order
      | line | status | thread_id |
      | 1    | ok     | "all"     |
      | 2    | ok     | "all"     |

  # -- how the runs go ---------------------------------------------------------------------------

  Scenario: A run that takes longer than --timeout has failed, and the others continue
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:endless --input in.jsonl --timeout 0.05"
    Then the exit status is 1
    And the output's record of line 1 is "timed_out": "0.05" and "endless"

  Scenario: Retries turn passing failures into results
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """
    When I run "rxlanggraph run graphs.py:second_try --input in.jsonl --retries 1"
    Then the exit status is 0
    And the summary says "read 2: 2 ok" and "0 failed"

  Scenario: --halt ends the run after N failures, and reports it
    Given 1000 lines in "in.jsonl", of which each second fails with "divide"
    When I run "rxlanggraph run graphs.py:divide --input in.jsonl -o out.jsonl --halt 3 -j 1"
    Then the exit status is 3
    And standard error says "halted: 3 of"
    And fewer than 20 lines were read, each with a record in "out.jsonl" or not run

  Scenario: --halt with a percentage counts from the twentieth message on
    Given 1000 lines in "in.jsonl", of which each second fails with "divide"
    When I run "rxlanggraph run graphs.py:divide --input in.jsonl -o out.jsonl --halt 40% -j 1"
    Then the exit status is 3
    And standard error says "halted: 10 of 20 messages failed"

  Scenario Outline: --halt stops at <bound> and not before
    Then the bound "<bound>" is <reached> with <failures> failures among <finished>

    Examples:
      | bound | failures | finished | reached     |
      | 3     | 2        | 1000     | not reached |
      | 3     | 3        | 3        | reached     |
      | 10%   | 19       | 19       | not reached |
      | 10%   | 2        | 20       | reached     |
      | 10%   | 9        | 100      | not reached |
      | 10%   | 10       | 100      | reached     |
      | 0.5%  | 1        | 200      | reached     |

  Scenario: --rate spaces messages evenly, and makes up for no more than a twentieth of a second
    Given a rate of "10/s" and a clock that stands at 0 s
    Then a message may go after these seconds of waiting
      | the clock | waits |
      | 0         | 0     |
      | 0         | 0.1   |
      | 0.1       | 0.1   |
      | 5         | 0     |
      | 5         | 0.05  |
    And one may not go once the reader has ended

  Scenario: --rate applies to the messages of a run
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl --rate 20/s"
    Then the exit status is 0
    And it took at least 0.05 seconds

  Scenario: No more lines are read than may be without a record
    Given an input reader with a window of 8 over 1000 lines
    When each message's slot is given back as the message arrives
    Then all 1000 messages arrive in order, and never were more than 8 lines ahead

  Scenario: Ending an input reader from another thread completes the stream once, with nothing after it
    Given an input reader whose observer ends it in the middle of its third message
    Then the observer saw three messages and one completion

  Scenario: A defect in the pipeline is raised and hides no line
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    And writing a record raises an unexpected error
    When running "rxlanggraph run graphs.py:double --input in.jsonl" raises "unexpected"

  # -- what goes wrong outside -------------------------------------------------------------------

  Scenario Outline: A mistake is named with its remedy, and an existing output is left unchanged
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    And the file "twice.csv"
      """
      a,a
      """
    And the file "failing.py"
      """
      raise LookupError("no such model")
      """
    And the file "needy.py"
      """
      import a_package_that_nobody_has
      """
    And the file "wrong.py"
      """
      def f(:
      """
    And the file "out.jsonl"
      """
      kept
      """
    And the file "plain.py"
      """
      from functools import partial, reduce
      async def answer(content):
          return content
      """
    When I run "rxlanggraph run <arguments> -o out.jsonl"
    Then the exit status is 2
    And standard error says "<object>"
    And standard error says "<remedy>"
    And "out.jsonl" still says "kept"

    Examples: the graph
      | arguments                                          | object                                           | remedy                        |
      | graphs.py -i in.jsonl                              | 'graphs.py' does not name a graph                | MODULE_OR_FILE:GRAPH          |
      | nowhere.py:graph -i in.jsonl                       | no file 'nowhere.py'                             | give the path                 |
      | a_module_that_is_not:g -i in.jsonl                 | no module 'a_module_that_is_not'                 | check its name                |
      | graphs:doubble -i in.jsonl                         | 'graphs' has no 'doubble'                        | did you mean double           |
      | graphs.py:qqq -i in.jsonl                          | has no 'qqq'                                     | did you mean compiled or      |
      | plain.py:qqq -i in.jsonl                           | has no 'qqq'                                     | did you mean answer?          |
      | graphs.py:number -i in.jsonl                       | 'graphs.py:number' is not a graph                | pass a compiled               |
      | graphs.py:State -i in.jsonl                        | 'graphs.py:State' is a class                     | name a graph                  |
      | graphs.py:builder -i in.jsonl                      | is not compiled                                  | .compile()                    |
      | graphs.py:compiled -i in.jsonl                     | graphs.py:compiled has a checkpointer            | --thread-key                  |
      | graphs.py:on_thread -i in.jsonl --thread-key n     | graphs.py:on_thread is bound to the thread 'all' | --thread-key does not allow   |
      | graphs.py:on_thread -i in.jsonl --journal j.sqlite | graphs.py:on_thread is bound to the thread 'all' | --journal does not allow      |
      | graphs.py:on_number -i in.jsonl                    | 'graphs.py:on_number' cannot run                 | convert it with str()         |
      | failing.py:graph -i in.jsonl                       | LookupError: no such model                       | failing.py, line 1            |
      | failing:graph -i in.jsonl                          | LookupError: no such model                       | failing.py, line 1            |
      | needy:graph -i in.jsonl                            | a_package_that_nobody_has                        | needy.py, line 1              |
      | wrong.py:f -i in.jsonl                             | SyntaxError                                      | wrong.py, line 1              |
      | ./graphs:double -i in.jsonl                        | no file './graphs'                               | give the path                 |
      | ./in.jsonl:double -i in.jsonl                      | './in.jsonl' is not a Python file                | must end in .py               |

    Examples: the input and the options
      | arguments                                       | object                        | remedy               |
      | graphs.py:double -i nowhere.jsonl               | nowhere.jsonl: No such file   | give a readable file |
      | graphs.py:double -i .                           | cannot read .: Is a directory | give a readable file |
      | graphs.py:double -i out.jsonl                   | would overwrite the input     | name another file    |
      | graphs.py:double -i in.jsonl --errors in.jsonl  | would overwrite the input     | name another file    |
      | graphs.py:double -i in.jsonl --errors out.jsonl | are both out.jsonl            | leave out --errors   |
      | graphs.py:double -i in.jsonl --halt 0           | '0' is not a limit            | such as 3            |
      | graphs.py:double -i in.jsonl --halt 101%        | '101%' is not a limit         | such as 3            |
      | graphs.py:double -i in.jsonl --rate 5           | '5' is not a rate             | 5/s                  |
      | graphs.py:double -i in.jsonl --rate 0/s         | '0/s' is not a rate           | 5/s                  |
      | graphs.py:double -i in.jsonl -j 0               | --max-concurrency             | a whole number from 1 |
      | graphs.py:double -i in.jsonl -j 2.5             | '2.5' is not a whole number   | --max-concurrency    |
      | graphs.py:double -i in.jsonl --retries 1e10     | '1e10' is not a whole number  | --retries            |
      | graphs.py:double -i in.jsonl --retries 9999999999 | 9999999999 is too large     | 2,147,483,647 at most |
      | graphs.py:double -i in.jsonl --timeout 30s      | '30s' is not a number         | write 30             |
      | graphs.py:double -i in.jsonl --timeout nan      | 'nan' is not a number         | write 30             |
      | graphs.py:double -i in.jsonl --timeout 0        | 0 is too short                | more than 0 seconds  |
      | graphs.py:double -i in.jsonl --timeout 1e10     | 1e10 is too long              | 1,000,000,000        |
      | graphs.py:double -i in.jsonl --lease 0.01       | 0.01 is too short             | at least 0.1 seconds |
      | graphs.py:double -i in.jsonl -j 10001           | '-j': 10,001 runs at a time   | give at most 10,000  |

  Scenario: A CSV whose header names a column twice cannot be read
    Given the file "in.csv"
      """
      a,a
      1,2
      """
    When I run "rxlanggraph run graphs.py:double --input in.csv"
    Then the exit status is 2
    And standard error says "two columns are named 'a'; rename one"

  Scenario: A read error keeps the results so far, and is reported
    Given standard input fails after the line
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:double --input -"
    Then the exit status is 2
    And the output's records have the lines "1"
    And standard error says "reading standard input failed: Input/output error"

  Scenario: A file beside the graph can be imported, also one with the name of a known module
    Given the file "folder/helper.py"
      """
      FACTOR = 3
      """
    And the file "folder/json.py"
      """
      from helper import FACTOR
      def triple(content):
          return content["n"] * FACTOR
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run folder/json.py:triple --input in.jsonl"
    Then the output has these records in any order
      | line | status | content |
      | 1    | ok     | 3       |

  Scenario Outline: <what> is reported clearly, and each line is accounted for
    Given 1000 lines in "in.jsonl", of which each second fails with "divide"
    When I run "rxlanggraph run graphs.py:divide --input in.jsonl <options>"
    Then the exit status is 4
    And standard error says "<reason>"
    And standard error says "without a record: line"
    And standard error has no traceback

    Examples:
      | what                      | options                           | reason                                           |
      | A full disk               | -o /dev/full                      | no room left for /dev/full                       |
      | A full disk for failures  | -o out.jsonl --errors /dev/full   | no room left for /dev/full                       |

  Scenario: An output that cannot be opened is named with a remedy
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl -o nowhere/out.jsonl"
    Then the exit status is 4
    And standard error says "cannot write nowhere/out.jsonl: No such file or directory"

  Scenario: A line that a full disk cut in two is removed
    Given a disk with room for 10 bytes more
    When three lines of 4 bytes are written to it
    Then OutputError is raised, which says "no room left for the output"
    And it has two whole lines

  Scenario: A pipe that breaks within a line cannot remove it, and the error gives the reason
    Given a pipe that breaks after 10 bytes
    When three lines of 4 bytes are written to it
    Then OutputError is raised, which says "the reader of the output has gone"

  Scenario: An error that the system reports only when a file is closed is reported
    Given a disk that reports an error when a file is closed
    Then closing an output says that it could not be written

  Scenario: A reader that closes the pipe ends the command without a traceback
    Given 1000 lines in "in.jsonl", of which each second fails with "divide"
    When I run "rxlanggraph run graphs.py:divide --input in.jsonl" and close its output after one line
    Then the exit status is 4
    And standard error says "the reader of standard output has gone"
    And standard error has no traceback

  Scenario: The help of a command says what it does in one line each, and has headings
    When I run "rxlanggraph --help"
    Then the exit status is 0
    And no line about a command is cut off
    When I run "rxlanggraph state --help"
    Then the exit status is 0
    And no line about a command is cut off
    When I run "rxlanggraph run --help"
    Then the output has the headings "Messages and results, The graph, Runs, Models, Observation, Worker processes, Runs that survive a kill, Other options"

  Scenario: Durations are written in microseconds at most
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl"
    Then every duration in the output has 6 decimal places at most
    And the summary says "1 ok" and "results on standard output"

  @once
  Scenario Outline: A full standard output ends "<line>" with an error of one line
    Given the file "langgraph.json"
      """
      {"graphs": {"double": "./graphs.py:double"}}
      """
    And the file "out.jsonl"
      """
      {"line": 1, "status": "error", "error": {"type": "E", "message": "m"}}
      """
    When I run "rxlanggraph <line>" with a full standard output
    Then the exit status is 4
    And standard error is the line "rxlanggraph: no room left for standard output (No space left on device); make room, then try again"

    Examples:
      | line                                    |
      | errors out.jsonl                        |
      | graphs --json                           |
      | completion bash                         |
      | graphs                                  |
      | demo --messages 1                       |

  Scenario: A full standard error stops no thread
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl -o out.jsonl" with a full standard error
    Then the exit status is 0
    And "out.jsonl" has these records in any order
      | line | status | content |
      | 1    | ok     | 2       |

  Scenario: A defect on the way to the loop is raised too
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    And handing over a message raises an unexpected error
    When running "rxlanggraph run graphs.py:double --input in.jsonl" raises "unexpected"

  Scenario: An errors file that cannot be opened leaves nothing open
    Given the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run graphs.py:double --input in.jsonl -o out.jsonl --errors nowhere/e"
    Then the exit status is 4
    And standard error says "cannot write nowhere/e: No such file or directory"
