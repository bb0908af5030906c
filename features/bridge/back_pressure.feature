Feature: max_pending bounds the waiting messages of all threads, and never blocks the loop

  Scenario Outline: Two stages of one bridge work with max_pending=<pending>, and never hold more
    Given an open bridge on its own loop with max_concurrency=2, max_pending=<pending>
    When 60 messages go through two stages of that bridge
    Then all 60 come out, and never more than <bound> were in flight

    Examples:
      | pending | bound |
      | 1       | 5     |
      | 2       | 6     |
      | 8       | 12    |

  Scenario: Stages that share a thread do not deadlock
    Given an open bridge on its own loop with max_concurrency=2, max_pending=2
    When 60 messages of one thread go through two stages of that bridge
    Then all 60 come out, and never more than 6 were in flight

  Scenario: A result that leads to many messages is finished before the next one is emitted
    Given an open bridge on its own loop with max_concurrency=2, max_pending=2
    When 20 messages go through a stage, a flat_map to 10 each, and a second stage
    Then all 200 come out, and never more than 40 were in flight

  Scenario: Messages that a result causes on the loop later are admitted too
    Given an open bridge on an adopted loop with max_concurrency=2, max_pending=1
    When 20 messages go through a stage, a step of the loop, and a second stage
    Then all 20 come out, and never more than 5 were in flight

  Scenario: Messages caused by results that ran nothing are admitted on the loop like others
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When 20 failed results go through a stage, which runs nothing, and their sources through a second one
    Then all 20 come out, and never more than 41 were in flight

  Scenario: A blocked submitter is woken when half of the room is free, not for each place
    Given an open bridge on its own loop with max_concurrency=1, max_pending=8
    When a source sends 20 messages that wait, and blocks
    And 3 of the runs end
    Then the source is still blocked
    When 1 of the runs ends
    Then the source has sent 4 more, and blocks again

  Scenario: A submitter that may not block takes no room for which others wait
    Given an open bridge on its own loop with max_concurrency=1, max_pending=4
    When a source sends 20 messages that wait, and blocks
    And 1 of the runs ends
    Then a message from the loop's own thread is refused with BlockingCallError

  Scenario: The loop's own thread never waits, however many threads compete for the room
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When 4 threads and the loop's own thread submit 300 messages each
    Then each one is answered or was refused with BlockingCallError, and only on the loop

  @with_gil
  Scenario: A submitter that gets room is awake before a busy loop continues
    Given 20 times room for 64 runs, which is taken, and a thread that waits for it
    When half of them start, and nothing else gives up the GIL
    Then each thread has got room and runs

  @with_gil @tdd_expected_fail
  Scenario: A submitter that gets room does not run while a busy loop continues without waiting
    Given 20 times room for 64 runs, which is taken, and a thread that waits for it
    When the room of half of them is freed, and nothing else gives up the GIL
    Then each thread has got room and runs

  Scenario: A thread that is faster than the graph blocks and is woken many times over
    Given an open bridge on its own loop with max_concurrency=4, max_pending=64
    When a thread sends 2000 messages through a stage
    Then each of the 2000 is answered

  @with_gil
  Scenario: A thread that the loop has woken for room does not have to wake the loop in return
    Given an open bridge on its own loop with max_concurrency=4, max_pending=64
    When a thread sends 2000 messages through a stage, and threads take turns only where they block
    Then each of the 2000 is answered
    And the thread was woken for room at least 20 times, and has since woken the loop less than 5 times

  @with_gil
  Scenario: A submitter that gets room and does not wake up holds up nothing
    Given 20 times room for 64 runs, which is taken, and a thread that waits for it
    And the threads will not wake up
    When half of them start, and nothing else gives up the GIL
    Then they have started

  Scenario Outline: A message that waits <how> for room when its source completes <ends so>
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a source completes while its last message waits <how> for room, and then <what>
    Then the stream has <count> results, and ends with <end>

    Examples:
      | how           | ends so     | what                 | count | end               |
      | without order | is answered | there is room        | 1     | completed         |
      | in order      | is answered | there is room        | 1     | completed         |
      | without order | is refused  | the bridge is closed | 0     | BridgeClosedError |
      | for a time    | is rejected | its time is over     | 1     | completed         |

  # -- a thread that runs another event loop may block, unless that is what the room depends on

  Scenario Outline: A loop is told that it would wait forever for room that depends on what it <does>
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When the thread of another loop submits a message for which there is no room, and the loop <does>
    Then it is told so by a DeadlockError, and all else is answered

    Examples:
      | does                    |
      | reads                   |
      | reads chunks            |
      | is to read chunks later |
      | pulls                   |
      | submits itself          |

  Scenario: A loop waits for room that depends on what another loop reads
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When the thread of a loop submits messages to a stream that was opened there, and is read on another one
    Then all 4 are read

  Scenario: After close, no submitter waits for room
    Given room for one run, which is taken and then closed
    Then two more are let through at once

  Scenario: Runs that a result leads to may be more than there is room for; others wait for all of them
    Given room for one run, which is taken
    When a result leads to one more
    Then there is no room for another

  Scenario: A source's room for its next item is not passed on by code that it has merely started
    Given room for one run, which is taken by a source that emits nothing at the moment
    When a thread that the source has started sends a message
    Then there is room once the source has ended, and not before

  Scenario Outline: A submitter interrupted just when <something happens> leaves nothing behind
    Given room for one run, which is taken
    When the next one is interrupted just when <something happens>
    Then there is room for one run again

    Examples:
      | something happens             |
      | it is given the room          |
      | it is turned away             |

  Scenario Outline: Three stages with <order>, fed by 3 threads, pass the pressure on to all of them, on <home> loop
    Given an open bridge on <home> loop with max_concurrency=2, max_pending=1
    When 3 threads send 40 messages each into three stages of that bridge with <order>
    Then all 120 come out, and never more than 8 were in flight
    And no thread was more than 9 messages ahead of the end of the stages

    Examples:
      | home       | order         |
      | its own    | ordered=True  |
      | its own    | ordered=False |
      | an adopted | ordered=True  |
      | an adopted | ordered=False |

  @tdd_expected_fail
  Scenario: Without max_pending, a source does not notice that the stages are slow
    Given an open bridge on its own loop with max_concurrency=2
    When 3 threads send 40 messages each into three stages of that bridge with ordered=False
    Then all 120 come out, and never more than 8 were in flight
    And no thread was more than 9 messages ahead of the end of the stages

  Scenario Outline: The bound of a bridge and LangGraph's max_concurrency of a run both hold: <nodes> nodes
    Given an open bridge on its own loop with max_concurrency=2, max_pending=2
    When 6 messages go to a graph that sends 12 times to <nodes> nodes, with max_concurrency=3 in the config
    Then no run had more than 3 nodes on at once, and no more than 2 runs were on

    Examples:
      | nodes |
      | async |
      | sync  |

  @tdd_expected_fail
  Scenario: The bound of the bridge alone does not bound the nodes of one run
    Given an open bridge on its own loop with max_concurrency=2, max_pending=2
    When 6 messages go to a graph that sends 12 times to async nodes, with recursion_limit=25 in the config
    Then no run had more than 3 nodes on at once, and no more than 2 runs were on
