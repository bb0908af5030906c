Feature: A run with a journal survives being killed: every line is answered exactly once

  The journal knows what was answered, the output is a copy of it that can always be made again.

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio, os, pathlib, time
      from langgraph.types import Interrupt
      from rxlanggraph.bridge.run import current_run

      def note(content):
          with open("runs", "a") as runs:
              runs.write(f"{content['n']}\n")

      async def double(content):
          note(content)
          return content["n"] * 2

      def large(content):
          return "x" * (2_000_000 if content["n"] == 2 else 1)

      async def divide(content):
          note(content)
          return 12 // content["n"] if not os.path.exists("mended") else "mended"

      async def asking(content):
          return {"__interrupt__": [Interrupt(content["n"], id="an id")]}

      async def deadly(content):
          if content["n"] == 2 and not os.path.exists("mended"):
              os._exit(9)
          return content["n"]

      async def reversing(content):
          await asyncio.sleep(0.05 - content["n"] / 100)
          return content["n"]

      async def held_up(content):
          if content["n"] == 1:
              12 // os.path.exists("mended")
              open("again", "w").close()
          while content["n"] == 4 and not (os.path.exists("open") or os.path.exists("again")):
              await asyncio.sleep(0.005)
          return content["n"]

      async def attentive(content):
          deadline = time.monotonic() + 30
          while content["n"] == 4 and pathlib.Path("out.jsonl").read_text().count("\n") < 3:
              assert time.monotonic() < deadline, "nothing is written before the end"
              await asyncio.sleep(0.01)
          return content["n"]

      async def deadly_later(content):
          if content["n"] == 200:
              os._exit(9)
          return content["n"]

      async def held_until_all_have_run(content):
          note(content)
          if content["n"] == 200:
              open("held", "w").close()
          deadline = time.monotonic() + 30
          while content["n"] == 200 and pathlib.Path("runs").read_text().count("\n") < 300:
              assert time.monotonic() < deadline, "lines were claimed and not run"
              await asyncio.sleep(0.01)
          return content["n"]

      async def cancelled_once(content):
          note(content)
          if not os.path.exists("cancelled"):
              open("cancelled", "w").close()
              current_run().cancel()
          return content["n"]

      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 0}

      nonsense
      {"n": 4}
      """
    And the file "good.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3}
      {"n": 4}
      """

  # -- what comes out ------------------------------------------------------------------------

  Scenario: The output has the records that it has without a journal
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal run.sqlite"
    Then the exit status is 1
    And "out.jsonl" has these records in any order
      | line | status  | content | error.type          |
      | 1    | ok      | 12      | null                |
      | 2    | error   | null    | "ZeroDivisionError" |
      | 4    | invalid | null    | "InvalidLine"       |
      | 5    | ok      | 3       | null                |
    And every record in "out.jsonl" has the keys "line, id, thread_id, status, content, error, duration"
    And the summary says "read 4: 2 ok, 1 failed, 1 invalid, 0 not run" and "3 answered here"

  Scenario: Lines whose graphs ask are interrupted, with their questions
    When I run "rxlanggraph run graphs.py:asking -i good.jsonl -o out.jsonl -j 1 --journal run.sqlite"
    Then the exit status is 1
    And "out.jsonl" has these records in any order
      | line | status      | interrupts.0.id | interrupts.0.value |
      | 1    | interrupted | an id           | 1                  |
      | 2    | interrupted | an id           | 2                  |
      | 3    | interrupted | an id           | 3                  |
      | 4    | interrupted | an id           | 4                  |

  Scenario: The run options are checked once for all lines
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --retries 1 --journal j", and the checks are counted
    Then the exit status is 0
    And it was checked 1 time how the graph is to run

  Scenario Outline: A short result of this process is not read, with <option>
    Given 300 lines of 3 threads in "many.jsonl"
    When I run "rxlanggraph run graphs.py:double -i many.jsonl -o out.jsonl <option> --journal j", and what is looked for is noted
    Then "out.jsonl" has each of the 300 lines once
    And no answer was looked for

    Examples:
      | option    |
      | -j 8      |
      | --ordered |

  Scenario Outline: A long result of this process is read once, with <option>
    Given 300 lines of 3 threads in "many.jsonl"
    And results of more than 1 character are long
    When I run "rxlanggraph run graphs.py:double -i many.jsonl <option> --journal j", and what is looked for is noted
    Then the exit status is 0
    And the 300 answers were looked for no more than 600 times

    Examples:
      | option    |
      | -j 8      |
      | --ordered |

  Scenario: Results of other processes are found among the lines that they may have
    Given 300 lines of 3 threads in "many.jsonl"
    And the writer is not told what is answered here
    When I run "rxlanggraph run graphs.py:double -i many.jsonl -o out.jsonl --journal j", and what is looked for is noted
    Then "out.jsonl" has each of the 300 lines once

  Scenario Outline: Results of other processes are written while the run is in progress, with <option>
    Given the writer is not told what is answered here
    When I run "rxlanggraph run graphs.py:attentive -i good.jsonl -o out.jsonl <option> --journal j"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order

    Examples:
      | option    |
      | -j 8      |
      | --ordered |

  Scenario: With --ordered no more results are requested than twice as many as were found last
    Given 300 lines of 3 threads in "many.jsonl"
    And the writer is not told what is answered here
    When I run "rxlanggraph run graphs.py:double -i many.jsonl --ordered --journal j", and what is looked for is noted
    Then the exit status is 0
    And each time no more than 16 answers were looked for, or twice as many as the time before had found

  Scenario: With --ordered the records come in the order of the input, invalid lines too
    When I run "rxlanggraph run graphs.py:reversing -i in.jsonl --ordered --journal run.sqlite"
    Then the output's records have the lines "1, 2, 4, 5"

  Scenario: With --errors records that are not ok go to a file of their own, with the raw line
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --errors err.jsonl --journal j"
    Then "out.jsonl" has these records in any order
      | line | status | content |
      | 1    | ok     | 12      |
      | 5    | ok     | 3       |
    And "err.jsonl" has these records in any order
      | line | status  | raw          |
      | 2    | error   | "{\"n\": 0}" |
      | 4    | invalid | "nonsense"   |

  Scenario: Messages of one thread run one after another, in order, across processes
    Given 30 lines of 3 threads in "threads.jsonl"
    When I run "rxlanggraph run graphs.py:double -i threads.jsonl -o out.jsonl --thread-key t --journal j"
    Then the exit status is 0
    And each thread's lines ran in their order

  Scenario: A line that is nested almost too deep for Python is invalid, and ends no process
    Given the file "deep.jsonl" has lines that are nested up to 20 levels less or more than Python reads
    When I run "rxlanggraph run graphs.py:double -i deep.jsonl -o out.jsonl --journal j"
    Then the exit status is 1
    And each record in "out.jsonl" is invalid, and says "recursion depth"

  Scenario: A thread may have any name, also one that no server accepts
    Given the file "threads.jsonl"
      """
      {"n": 1, "t": "a\u0000b"}
      {"n": 2, "t": "Þórshöfn ✈"}
      """
    When I run "rxlanggraph run graphs.py:double -i threads.jsonl -o out.jsonl --thread-key t --journal j"
    Then "out.jsonl" has these records in any order
      | line | status | thread_id    |
      | 1    | ok     | "a\u0000b"   |
      | 2    | ok     | "Þórshöfn ✈" |

  Scenario: CSV, numbers that JSON does not have, and characters beyond ASCII survive the journal
    Given the file "odd.jsonl"
      """
      {"n": NaN}
      {"n": "Þ✈\u0000 "}
      """
    And the file "in.csv"
      """
      n,text
      1,"two
      lines"
      """
    When I run "rxlanggraph run graphs.py:double -i odd.jsonl -o out.jsonl --journal j"
    Then "out.jsonl" has these records in any order
      | line | status | content            |
      | 1    | ok     | "NaN"              |
      | 2    | ok     | "Þ✈\u0000 Þ✈\u0000 " |
    When I run "rxlanggraph run graphs.py:double -i in.csv -o csv.jsonl --journal k"
    Then "csv.jsonl" has these records in any order
      | line | status | content |
      | 2    | ok     | "11"    |

  # -- killed --------------------------------------------------------------------------------

  @once
  Scenario: A run killed at each single step of its work answers each line once after --resume
    When a run over 3 lines with "-j 1" is killed at each step in turn, and resumed each time
    Then it was killed more than 25 times
    And each time every line was answered once, in a whole record

  @once
  Scenario: A run killed at each single step, lines in batches, keeps the order with --ordered
    When a run over 3 lines with "--ordered" is killed at each step in turn, and resumed each time
    Then it was killed more than 15 times
    And each time every line was answered once, in a whole record

  Scenario Outline: Killed <when> <effect>, the run continues
    When "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl -j 1 --lease 0.3 --journal j" is killed <when> <effect>, at time <time>
    And I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And "out.jsonl" has these records in any order
      | line | status | content |
      | 1    | ok     | 2       |
      | 2    | ok     | 4       |
      | 3    | ok     | 6       |
      | 4    | ok     | 8       |
    And the graph ran <runs> times

    Examples:
      | when             | effect                | time | runs |
      | after            | the run is begun      | 1    | 4    |
      | before           | the ingest is noted   | 1    | 4    |
      | after            | an answer is kept     | 2    | 4    |
      | in the middle of | a record is written   | 4    | 4    |
      | before           | an answer is kept     | 3    | 5    |

  @tdd_expected_fail
  Scenario: The naive way: continuing after the last line of the output loses or doubles lines
    When the naive way is killed in the middle of its second record, and goes on
    Then "naive.jsonl" has each of the 4 lines once

  Scenario: An answered line is not run again
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j"
    And I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And the summary says "read 4: 4 ok" and "0 answered here"
    And the graph ran 4 times

  Scenario: A cancelled run has no answer yet: its line runs again, its worker continues
    When I run "rxlanggraph run graphs.py:cancelled_once -i good.jsonl -o out.jsonl -j 1 --journal j"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order
    And the graph ran 5 times

  Scenario: A line that kills its workers is given up and reported, and delays no other
    When "rxlanggraph run graphs.py:deadly -i good.jsonl -o out.jsonl -j 1 --lease 0.3 --max-attempts 2 --journal j --resume" dies 2 times
    And I run "rxlanggraph run graphs.py:deadly -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 1
    And "out.jsonl" has these records in any order
      | line | status | content |
      | 1    | ok     | 1       |
      | 2    | dead   | null    |
      | 3    | ok     | 3       |
      | 4    | ok     | 4       |
    And the record of line 2 in "out.jsonl" says "given up after 2 attempts" and "crashed"
    And the status of "j" counts 1 dead and 0 failed
    Given the file "mended"
      """
      """
    When I run "rxlanggraph run graphs.py:deadly -i good.jsonl -o out.jsonl --journal j --resume-failed"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order

  @once
  Scenario: Lines claimed ahead of one that kills its workers lose one attempt at most
    Given 300 lines of 3 threads in "many.jsonl"
    When "rxlanggraph run graphs.py:deadly_later -i many.jsonl -o out.jsonl -j 1 --lease 0.3 --max-attempts 2 --journal j --resume" dies 2 times
    And I run "rxlanggraph run graphs.py:deadly_later -i many.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 1
    And "out.jsonl" has each of the 300 lines once
    And the status of "j" counts 1 dead and 0 failed

  @once
  Scenario: Lines claimed ahead of one that takes long are given back, and another process runs them
    Given 300 lines of 3 threads in "many.jsonl"
    When "rxlanggraph run graphs.py:held_until_all_have_run -i many.jsonl -o out.jsonl -j 1 --journal j" runs apart
    And once "held" is there I run "rxlanggraph run graphs.py:held_until_all_have_run -i many.jsonl --no-output --journal j --resume"
    Then the exit status is 0
    And "out.jsonl" has each of the 300 lines once
    And the graph ran 300 times

  @once
  Scenario: A line claimed ahead runs although the loop of the journal stands still
    Given 300 lines of 3 threads in "many.jsonl"
    And the loop of the journal stands still once, until a line that is ahead has run
    When I run "rxlanggraph run graphs.py:double -i many.jsonl -o out.jsonl -j 1 --journal j"
    Then the exit status is 0
    And it stood still, and "out.jsonl" has each of the 300 lines once
    And the graph ran 300 times

  # -- the output --------------------------------------------------------------------------------

  Scenario Outline: An output with <what> at its end is repaired, with <option>
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl <option> --journal j" has run
    And "out.jsonl" has got <what> at its end
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl <option> --journal j --resume"
    Then the exit status is 0
    And "out.jsonl" is as it was
    And the graph ran 4 times

    Examples:
      | what                     | option    |
      | half a record            | --ordered |
      | half a record            | -j 1      |
      | half a record without it | --ordered |
      | a record twice           | --ordered |
      | a record twice           | -j 1      |
      | a record of another run  | -j 1      |
      | an invalid line          | -j 1      |
      | a number                 | -j 1      |
      | bytes that are not UTF-8 | -j 1      |
      | a line of no number      | -j 1      |
      | a gap before             | --ordered |

  Scenario: A lost output is written again from the journal, whatever its name
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o other.jsonl --ordered --journal j --resume"
    Then the lines of "other.jsonl" are "1, 2, 3, 4" in this order
    And the graph ran 4 times

  Scenario: A file of an earlier run is overwritten, as without a journal
    Given "rxlanggraph run graphs.py:double -i in.jsonl -o out.jsonl" has run
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j"
    Then "out.jsonl" has these records in any order
      | line | status | content |
      | 1    | ok     | 2       |
      | 2    | ok     | 4       |
      | 3    | ok     | 6       |
      | 4    | ok     | 8       |

  Scenario Outline: A run without a journal does not overwrite the records of a run with one, as <option>
    Given "rxlanggraph run graphs.py:double -i in.jsonl -o out.jsonl --errors bad.jsonl --journal j" has run
    And the file "other.jsonl"
      """
      kept
      """
    When I run "rxlanggraph run graphs.py:double -i good.jsonl <arguments>"
    Then the exit status is 4
    And standard error says "<name> has the records of a run with a journal"
    And standard error says "continue that with --journal and --resume, or name another file"
    And "out.jsonl" is as it was
    And "bad.jsonl" is as it was
    And "other.jsonl" still says "kept"

    Examples:
      | option   | arguments                          | name      |
      | --output | -o out.jsonl                       | out.jsonl |
      | --errors | -o other.jsonl --errors bad.jsonl  | bad.jsonl |

  Scenario: A run without a journal does not write into what another process writes
    Given another process writes "out.jsonl"
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl"
    Then the exit status is 4
    And standard error says "another run writes out.jsonl; name another file, or wait until that has ended"

  Scenario: An output may be overwritten although a forked child still has it open
    When an output is opened, then shared with a child, and closed by this process alone
    Then another output can be opened there

  Scenario: --ordered given only later puts the output in order
    Given "rxlanggraph run graphs.py:reversing -i good.jsonl -o out.jsonl --journal j" has run
    When I run "rxlanggraph run graphs.py:reversing -i good.jsonl -o out.jsonl --ordered --journal j --resume"
    Then the lines of "out.jsonl" are "1, 2, 3, 4" in this order

  Scenario: --errors given only later moves the failures there, and back
    Given "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered --journal j" has run
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered --errors e.jsonl --journal j --resume"
    Then the lines of "out.jsonl" are "1, 5" in this order
    And the lines of "e.jsonl" are "2, 4" in this order
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered --journal j --resume"
    Then the lines of "out.jsonl" are "1, 2, 4, 5" in this order
    And the graph ran 3 times

  Scenario: A full disk loses no answer: with room again the records are written, and nothing runs again
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o /dev/full --journal j"
    Then the exit status is 4
    And standard error says "no room left for /dev/full"
    And standard error says "--resume"
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order
    And the graph ran 4 times

  Scenario: --no-output processes lines, and a later process writes the results
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --no-output --journal j"
    Then the exit status is 0
    And the summary says "4 answered here" and "no results written here"
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --ordered --journal j --resume"
    Then the output's records have the lines "1, 2, 3, 4"
    And the graph ran 4 times

  Scenario: A process that finds the output locked by another one writes it once that has ended
    Given another process writes "out.jsonl"
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j", and the other goes when all is answered
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order

  Scenario: More answers than are held at a time are written in order, and all
    Given 700 lines in "many.jsonl", of which each seventh is invalid
    And no more than 10 lines wait to be written, and 3 are looked for at a time
    When I run "rxlanggraph run graphs.py:divide -i many.jsonl -o out.jsonl --ordered --errors e.jsonl --journal j"
    Then the exit status is 1
    And "out.jsonl" and "e.jsonl" have 600 and 100 records, each in order
    When I run "rxlanggraph run graphs.py:divide -i many.jsonl -o again.jsonl --journal j --resume"
    Then "again.jsonl" has each of the 700 lines once

  Scenario: More invalid lines in a row than are held at a time have their records, and so have those behind
    Given the file "in.csv"
      """
      n
      1,1
      1,1
      1,1
      1,1
      1
      """
    And no more than 3 lines wait to be written, and 3 are looked for at a time
    When I run "rxlanggraph run graphs.py:double -i in.csv -o out.jsonl --journal j"
    Then the exit status is 1
    And the lines of "out.jsonl" are "2, 3, 4, 5, 6" in any order

  # -- failed and dead -----------------------------------------------------------------------

  Scenario: --resume leaves what has failed as it is; --resume-failed runs it again
    Given "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered --journal j" has run
    And the file "mended"
      """
      """
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered --journal j --resume"
    Then the exit status is 1
    And "out.jsonl" is as it was
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --ordered --journal j --resume-failed"
    Then standard error says "requeued 1 failed message"
    And "out.jsonl" has these records in any order
      | line | status  | content  |
      | 1    | ok      | 12       |
      | 2    | ok      | "mended" |
      | 4    | invalid | null     |
      | 5    | ok      | 3        |
    And the lines of "out.jsonl" are "1, 2, 4, 5" in this order
    And the graph ran 4 times

  Scenario: What fails again has one record, the newer one
    Given "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --errors e.jsonl --journal j" has run
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --errors e.jsonl --journal j --resume-failed"
    Then the exit status is 1
    And the lines of "out.jsonl" are "1, 5" in any order
    And the lines of "e.jsonl" are "2, 4" in any order
    And the record of line 2 in "e.jsonl" is another one

  Scenario Outline: Killed <when> <effect>, --resume-failed can be repeated
    Given "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j" has run
    When "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --lease 0.3 --journal j --resume-failed" is killed <when> <effect>, at time 1
    Given the file "mended"
      """
      """
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --resume-failed"
    Then "out.jsonl" has these records in any order
      | line | status  | content  |
      | 1    | ok      | 12       |
      | 2    | ok      | "mended" |
      | 4    | invalid | null     |
      | 5    | ok      | 3        |

    Examples:
      | when             | effect                |
      | before           | failures are put back |
      | after            | failures are put back |
      | after            | the output is cut     |
      | before           | a failure is kept     |
      | after            | a failure is kept     |
      | in the middle of | a record is written   |

  Scenario: Failures that another process requeues are replaced by the process that writes at that time
    Given the failures are requeued while the last record is written
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j"
    Then "out.jsonl" has these records in any order
      | line | status  | content  |
      | 1    | ok      | 12       |
      | 2    | ok      | "mended" |
      | 4    | invalid | null     |
      | 5    | ok      | 3        |

  @once
  Scenario: Whenever --resume-failed is killed, a run beside it ends with the right output
    When beside a run, --resume-failed is killed at each step in turn
    Then it was killed more than 2 times
    And each time what says that all is well has the records of the journal

  # -- whose journal it is -----------------------------------------------------------------------

  Scenario: A run is not begun twice by mistake
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j"
    Then the exit status is 2
    And standard error says "the journal j has a run already, begun 2"
    And standard error says "add --resume"
    And "out.jsonl" is as it was

  Scenario: --resume begins what was not begun
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order

  Scenario Outline: A journal refuses <what>, and the output stays as it is
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run
    And the file "good.csv"
      """
      n
      """
    When I run "rxlanggraph run <arguments> -o out.jsonl --journal j --resume"
    Then the exit status is 2
    And standard error says "the journal j belongs to another run"
    And standard error says "<difference>"
    And standard error says "name another journal"
    And "out.jsonl" is as it was

    Examples:
      | what                 | arguments                                  | difference                                  |
      | another graph        | graphs.py:divide -i good.jsonl             | its graph is graphs.py:double, not graphs.py:divide |
      | another input        | graphs.py:double -i in.jsonl               | its input is good.jsonl (                   |
      | another format       | graphs.py:double -i good.jsonl --format csv | its --format is jsonl, not csv             |
      | another thread key   | graphs.py:double -i good.jsonl --thread-key n | its --thread-key is left out, not n      |
      | a module of that name | json:dumps -i good.jsonl                  | its graph is graphs.py:double, not json:dumps |

  Scenario: The same graph and input may be named in another way
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run
    And the file "folder/copy.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3}
      {"n": 4}
      """
    When I run "rxlanggraph run ./folder/../graphs.py:double -i folder/copy.jsonl -o out.jsonl --journal ./j --resume"
    Then the exit status is 0

  Scenario: A run may continue with a fixed graph
    Given "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j" has run
    And the file "graphs.py"
      """
      async def divide(content):
          return "other code"
      """
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --resume-failed"
    Then "out.jsonl" has these records in any order
      | line | status  | content      |
      | 1    | ok      | 12           |
      | 2    | ok      | "other code" |
      | 4    | invalid | null         |
      | 5    | ok      | 3            |

  Scenario: An input that changes while it is read is refused
    Given every line is added by itself
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j", and "good.jsonl" grows before the first line is kept
    Then the exit status is 2
    And standard error says "good.jsonl has changed since the command began"

  Scenario: Of an input that grows, nothing gets into the journal that was not there at the beginning
    Given every line is added by itself
    When I run "rxlanggraph run graphs.py:double -i good.jsonl --no-output --journal j", and "good.jsonl" grows before the first line is kept
    Then the exit status is 2
    And standard error says "good.jsonl has changed since the command began"
    Given the file "good.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3}
      {"n": 4}
      """
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order
    And the status of "j" counts 4 lines and 0 invalid

  # -- mistakes ----------------------------------------------------------------------------------

  Scenario Outline: A mistake is named with its remedy: <arguments>
    Given the file "text"
      """
      this is not a database, and longer than the header of one, which has a hundred bytes: so much for that
      """
    When I run "rxlanggraph <arguments>"
    Then the exit status is <status>
    And standard error says "<object>"
    And standard error says "<remedy>"

    Examples:
      | arguments                                                                | status | object                                     | remedy               |
      | run graphs.py:double -i good.jsonl --resume                              | 2      | --resume needs a --journal                 | name its file        |
      | run graphs.py:double -i good.jsonl --resume-failed                       | 2      | --resume-failed needs                      | name its file        |
      | run graphs.py:double -i good.jsonl --no-output                           | 2      | --no-output needs                          | name its file        |
      | run graphs.py:double -i good.jsonl --no-output --errors e --journal j    | 2      | --errors                                   | leave it out         |
      | run graphs.py:double -i good.jsonl --journal good.jsonl                  | 2      | --journal and --input are both             | name another file    |
      | run graphs.py:double -i good.jsonl -o j --journal j                      | 2      | --journal and --output are both            | name another file    |
      | run graphs.py:double -i good.jsonl --journal text                        | 2      | cannot open the journal text               | not a database       |
      | run graphs.py:double -i good.jsonl --journal no/where                    | 2      | cannot open the journal no/where           | unable to open       |
      | run graphs.py:double -i good.jsonl --journal memory:                     | 2      | would be lost with the command                | name a file          |
      | run graphs.py:double -i good.jsonl --journal gopher://here               | 2      | cannot open the journal gopher://here      | must begin with      |
      | run graphs.py:double -i good.jsonl --journal redis://here#a/b            | 2      | redis://here#a/b does not name a journal   | up to 56 letters     |
      | run graphs.py:double -i good.jsonl --journal sqlite:///j?k               | 2      | j?k does not name a journal                | as %3F               |
      | run graphs.py:double -i good.jsonl --journal /dev/null                   | 2      | cannot open the journal                    | not a regular file   |
      | run graphs.py:double -i good.jsonl --journal redis://here/jobs           | 2      | cannot open the journal                    | number of a database |
      | run graphs.py:double -i - --journal j                                    | 2      | journal of standard input                  | write it to a file   |
      | run graphs.py:double -i /dev/null --journal j                            | 2      | journal of /dev/null                       | write it to a file   |
      | run graphs.py:double -i nowhere --journal j                              | 2      | cannot read nowhere                        | give a readable      |
      | run graphs.py:double -i good.jsonl -o no/where --journal j               | 4      | cannot write no/where                      | name a file          |
      | run graphs.py:double -i good.jsonl --journal redis://u:pass@127.0.0.1:1/ | 5      | redis://u:***@127.0.0.1:1/ does not answer | --resume             |
      | status nowhere                                                           | 2      | nowhere is not a journal                   | run --journal        |
      | status text                                                              | 2      | cannot open the journal text               | not a database       |
      | status redis://127.0.0.1:1/                                              | 5      | does not answer                            | try again            |

  Scenario: A journal that stops answering ends the command, and loses no answer
    Given the journal does not answer when one is to be kept
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --lease 0.3 --journal j"
    Then the exit status is 5
    And standard error says "the journal does not answer; trying again"
    And standard error says "when it is back, continue with --resume"
    Given the journal answers again
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order

  Scenario: An answer that the journal never accepts is a failure of its line, and of no other
    Given a server for the journal that takes values of 1 MB
    When I run "rxlanggraph run graphs.py:large -i good.jsonl -o out.jsonl --journal {journal}"
    Then the exit status is 1
    And "out.jsonl" has these records in any order
      | line | status | content | error.type         |
      | 1    | ok     | "x"     | null               |
      | 2    | error  | null    | "UnstorableResult" |
      | 3    | ok     | "x"     | null               |
      | 4    | ok     | "x"     | null               |

  Scenario: A line that the journal never accepts is named, and ends the command
    Given a server for the journal that takes values of 1 MB
    And 2 lines of 2 MB each in "large.jsonl"
    When I run "rxlanggraph run graphs.py:double -i large.jsonl -o out.jsonl --journal {journal}"
    Then the exit status is 5
    And standard error says "the journal does not accept lines 1 to 1 of large.jsonl"

  Scenario: A journal that refuses its user ends the command, and loses no answer
    Given the journal refuses to keep an answer
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --lease 0.3 --journal j"
    Then the exit status is 5
    And standard error says "the journal refuses a request: permission denied"
    Given the journal answers again
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order

  Scenario Outline: The end of a run is noticed soon, although a poll of it <what>
    When a look at the journal <what>, and the run ends behind it
    Then the end is seen within <seconds> seconds

    Examples:
      | what                   | seconds |
      | fails after 30 seconds | 1       |
      | takes 30 seconds       | 4       |

  Scenario: An outage of the server is reported once each time, however many calls wait for it
    When three callers wait for the journal while its server is away 2 times
    Then it is said 2 times that it does not answer

  Scenario: A worker that has waited long for work retries a server as long as others
    When a call waits an hour for work, and its server goes then
    Then it is asked again, and answers

  Scenario Outline: A heartbeat that fails with <error> is logged <how> a traceback
    When a heartbeat of a claim fails with <error>
    Then what is logged names <what>, <how> a traceback

    Examples:
      | error                 | what               | how     |
      | StateUnavailableError | the server is gone | without |
      | another error         | unexpected         | with    |

  Scenario: A journal that has lost its data is named, and no process waits forever
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j" has run
    And the journal "j" has lost its answers
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o other.jsonl --journal j --resume"
    Then the exit status is 5
    And standard error says "no answer for line 1-4, although its run is finished"

  Scenario Outline: A defect in <part> is raised, and hides no line
    Given a defect in <part>
    When running "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --lease 0.3 --journal j" raises "unexpected"
    Given the defect is mended
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 0
    And the lines of "out.jsonl" are "1, 2, 3, 4" in any order

    Examples:
      | part                    |
      | taking over the input   |
      | working                 |
      | looking how far it is   |
      | writing                 |

  Scenario: A wrong output does not begin a run
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o no/where --journal j"
    And I run "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl --journal j"
    Then the exit status is 0

  Scenario Outline: A line whose worker is killed <when> is on its thread once, and so are its steps
    Given the file "threads.py"
      """
      import contextlib, operator, os
      from typing import Annotated, TypedDict
      from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
      from langgraph.graph import START, StateGraph

      class State(TypedDict, total=False):
          n: int
          seen: Annotated[list, operator.add]

      async def first(state):
          return {"seen": [f"first {state['n']}"]}

      async def second(state):
          return {"seen": [f"second {state['n']}"]}

      class DeadlySaver(AsyncSqliteSaver):
          async def aput(self, config, checkpoint, metadata, new_versions):
              saved = await super().aput(config, checkpoint, metadata, new_versions)
              if metadata["step"] == <step> and not os.path.exists("killed"):
                  open("killed", "w").close()
                  os._exit(9)
              return saved

      @contextlib.asynccontextmanager
      async def graph():
          async with DeadlySaver.from_conn_string("threads.sqlite") as saver:
              builder = StateGraph(State).add_node(first).add_node(second)
              builder.add_edge(START, "first").add_edge("first", "second")
              yield builder.compile(checkpointer=saver)
      """
    And the file "thread.jsonl"
      """
      {"n": 1, "who": "ada"}
      {"n": 2, "who": "ada"}
      {"n": 3, "who": "ada"}
      """
    When "rxlanggraph run threads.py:graph -i thread.jsonl -o out.jsonl --thread-key who --lease 0.3 --journal j --resume" dies 1 times
    And I run "rxlanggraph run threads.py:graph -i thread.jsonl -o out.jsonl --thread-key who --journal j --resume"
    Then the exit status is 0
    And "out.jsonl" has these records in any order
      | line | status | content.seen                                                          |
      | 1    | ok     | ["first 1", "second 1"]                                               |
      | 2    | ok     | ["first 1", "second 1", "first 2", "second 2"]                        |
      | 3    | ok     | ["first 1", "second 1", "first 2", "second 2", "first 3", "second 3"] |

    Examples: Line 2 begins with the checkpoint of step 3
      | when                        | step |
      | as an earlier line ends     | 2    |
      | once its input is saved     | 3    |
      | once its first step is done | 5    |
      | once its last step is done  | 6    |

  Scenario Outline: A line that is cancelled by <what> is on its thread once, and so are its steps
    Given the file "threads.py"
      """
      import asyncio, contextlib, operator, os, sys
      from typing import Annotated, TypedDict
      from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
      from langgraph.graph import START, StateGraph
      from rxlanggraph.bridge.run import current_run

      class State(TypedDict, total=False):
          n: int
          seen: Annotated[list, operator.add]

      async def first(state):
          return {"seen": [f"first {state['n']}"]}

      async def second(state):
          if state["n"] == 2 and not os.path.exists("cancelled"):
              open("cancelled", "w").close()
              print("begun", file=sys.stderr, flush=True)
              <how>
              await asyncio.Event().wait()
          return {"seen": [f"second {state['n']}"]}

      @contextlib.asynccontextmanager
      async def graph():
          async with AsyncSqliteSaver.from_conn_string("threads.sqlite") as saver:
              builder = StateGraph(State).add_node(first).add_node(second)
              builder.add_edge(START, "first").add_edge("first", "second")
              yield builder.compile(checkpointer=saver)
      """
    And the file "thread.jsonl"
      """
      {"n": 1, "who": "ada"}
      {"n": 2, "who": "ada"}
      {"n": 3, "who": "ada"}
      """
    When "rxlanggraph run threads.py:graph -i thread.jsonl -o out.jsonl --thread-key who --journal j" runs, and gets <signals> once a run has begun
    And I run "rxlanggraph run threads.py:graph -i thread.jsonl -o out.jsonl --thread-key who --journal j --resume"
    Then the exit status is 0
    And "out.jsonl" has these records in any order
      | line | status | content.seen                                                          |
      | 1    | ok     | ["first 1", "second 1"]                                               |
      | 2    | ok     | ["first 1", "second 1", "first 2", "second 2"]                        |
      | 3    | ok     | ["first 1", "second 1", "first 2", "second 2", "first 3", "second 3"] |
    And the journal "j" keeps no note of a run that was cut off

    Examples:
      | what             | how                    | signals     |
      | a second Ctrl-C  | pass                   | two Ctrl-Cs |
      | itself           | current_run().cancel() | no signal   |

  Scenario: A graph whose checkpointer is only in memory gets a warning
    Given the file "remembering.py"
      """
      from langgraph.checkpoint.memory import InMemorySaver
      from langgraph.graph import END, START, StateGraph
      from typing import TypedDict

      class State(TypedDict):
          n: int

      def node(state: State) -> State:
          return state

      builder = StateGraph(State).add_node(node).add_edge(START, "node").add_edge("node", END)
      graph = builder.compile(checkpointer=InMemorySaver())
      """
    When I run "rxlanggraph run remembering.py:graph -i good.jsonl --thread-key n --journal j"
    Then the exit status is 0
    And standard error says "checkpointer keeps its threads in memory"

  # -- limits ------------------------------------------------------------------------------------

  Scenario: --halt stops after N failures of this process; --resume continues
    Given 200 lines in "half.jsonl", of which each second fails with "divide"
    When I run "rxlanggraph run graphs.py:divide -i half.jsonl -o out.jsonl --halt 3 -j 1 --journal j"
    Then the exit status is 3
    And standard error says "halted: 3 of"
    And standard error says "continue with --resume"
    When I run "rxlanggraph run graphs.py:divide -i half.jsonl -o out.jsonl --journal j --resume"
    Then the exit status is 1
    And "out.jsonl" has each of the 200 lines once

  Scenario: --rate, --retries and --timeout hold with a journal too
    Given the file "slow.py"
      """
      import asyncio
      tried = set()
      async def graph(content):
          if content["n"] == 1:
              await asyncio.Event().wait()
          if content["n"] not in tried:
              tried.add(content["n"])
              raise ConnectionError
          return content["n"]
      """
    When I run "rxlanggraph run slow.py:graph -i good.jsonl -o out.jsonl --rate 20/s --retries 1 --timeout 2 --journal j"
    Then it took at least 0.15 seconds
    And "out.jsonl" has these records in any order
      | line | status    | content |
      | 1    | timed_out | null    |
      | 2    | ok        | 2       |
      | 3    | ok        | 3       |
      | 4    | ok        | 4       |

  # -- status ------------------------------------------------------------------------------------

  Scenario: status shows progress, the messages in flight by worker, and the failures
    Given "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j" has run
    When I run "rxlanggraph status j"
    Then the exit status is 0
    And it printed these lines
      """
      journal    j
      graph      graphs.py:divide
      lines      4
      answered   4 (100%): 2 ok, 1 failed, 0 dead, 1 invalid
      waiting    0
      in flight  0
      """
    And it printed a line with "2 error 1" and "ZeroDivisionError: "

  Scenario: status as JSON describes a run that is under way
    Given "rxlanggraph run graphs.py:double -i good.jsonl -o out.jsonl -j 1 --lease 60 --journal j" was killed before an answer is kept, at time 3
    When I run "rxlanggraph status j --json"
    Then the exit status is 0
    And the JSON that it printed has these values
      | key            | value              |
      | journal        | "j"                |
      | graph          | "graphs.py:double" |
      | input.path     | "good.jsonl"       |
      | input.bytes    | 35                 |
      | finished       | false              |
      | input_complete | true               |
      | lines          | 4                  |
      | answered       | 2                  |
      | ok             | 2                  |
      | failed         | 0                  |
      | dead           | 0                  |
      | invalid        | 0                  |
      | in_flight      | 1                  |
      | waiting        | 1                  |
    And the JSON that it printed names the worker that died with 1 in flight
    When I run "rxlanggraph status j"
    Then it printed a line with "worker" and "in flight"

  Scenario: status shows twenty failures, and the number of the others
    Given 60 lines in "half.jsonl", of which each second fails with "divide"
    And "rxlanggraph run graphs.py:divide -i half.jsonl -o out.jsonl --journal j" has run
    When I run "rxlanggraph status j"
    Then it printed a line with "and 10 more" and "--json"

  # -- servers -----------------------------------------------------------------------------------

  @postgresql @valkey
  Scenario Outline: A journal may be on <server>, and a server may have several
    Given a journal on <server>
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal {journal}"
    Then the exit status is 1
    And the lines of "out.jsonl" are "1, 2, 4, 5" in any order
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o other.jsonl --journal {journal}"
    Then standard error says "belongs to another run"
    When I run "rxlanggraph run graphs.py:double -i good.jsonl -o other.jsonl --journal {journal}#other"
    Then the lines of "other.jsonl" are "1, 2, 3, 4" in any order
    And the status of "{journal}" counts 1 failed and 1 invalid
    And the status of "{journal}#other" counts 0 failed and 0 invalid
    Given the file "mended"
      """
      """
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal {journal} --resume-failed"
    Then "out.jsonl" has these records in any order
      | line | status  | content  |
      | 1    | ok      | 12       |
      | 2    | ok      | "mended" |
      | 4    | invalid | null     |
      | 5    | ok      | 3        |

    Examples:
      | server     |
      | PostgreSQL |
      | Valkey     |
