Feature: Thread policies: what a message does if its thread has a run already

  @tdd_expected_fail
  Scenario: RxPY alone: switch_latest begins the next run beside the cleanup of the last
    Given an open bridge on an adopted loop
    When 2 messages go to a graph that cleans up slowly, by switch_latest and run_coroutine_threadsafe
    Then the second run began after the first had ended

  # -- interrupt -------------------------------------------------------------------------------

  Scenario Outline: A message interrupts <kind>, and begins once that has really ended
    Given an open bridge on <home> loop
    When <kind> runs on a thread, and a second message interrupts it
    Then the first future says at once which message interrupted it
    When everything may end
    Then the second message is answered, and the two runs never overlapped

    Examples:
      | kind                               | home       |
      | a waiting graph                    | its own    |
      | a waiting graph                    | an adopted |
      | a waiting async function           | its own    |
      | a graph that cleans up slowly      | its own    |
      | a graph with a blocking sync node  | its own    |
      | a graph that swallows cancelling   | its own    |
      | a graph that swallows cancelling   | an adopted |

  Scenario: Messages that wait for a thread are dropped for one that interrupts it
    Given an open bridge on its own loop
    When 4 messages are on a thread, 1 of which runs, and another one interrupts them
    Then the 4 are interrupted, the counters say cancelled, and the last one is answered

  Scenario: A message that waits for a slot is dropped for one that interrupts its thread
    Given an open bridge on its own loop with max_concurrency=1
    When a run has the slot, and 2 messages of another thread arrive, the second with multitask_strategy="interrupt"
    And everything may end
    Then the first of the 2 was interrupted before it began, and the second is answered

  Scenario: Of 2000 messages that interrupt each other, the last one is answered
    Given an open bridge on its own loop
    When 2000 messages interrupt each other on one thread
    And everything may end
    Then 1999 are interrupted, each by a later message, and the last one is answered

  Scenario: What an interrupted run has saved is there for the next one
    Given an open bridge on its own loop
    When a graph with a checkpointer is interrupted in its second node
    Then the next run on the thread sees what the first node has saved

  Scenario: An interrupted run is not retried
    Given an open bridge on its own loop
    When a graph that fails when it is cancelled is interrupted, with retry=3
    Then it was tried once, and its future says that it was interrupted

  Scenario: A run that timed out, and is still cleaning up, stays timed out
    Given an open bridge on its own loop
    When a run that has timed out cleans up slowly, and a message interrupts its thread
    Then the first future has timed out, and the second message begins after its cleanup

  Scenario: A node may interrupt its own thread
    Given an open bridge on its own loop
    When a node sends a message to its own thread, with multitask_strategy="interrupt"
    Then the node's run is interrupted, and the message is answered

  Scenario: A message that drops the waiting ones makes room for blocked submitters
    Given an open bridge on its own loop with max_pending=2
    When a thread has a run and 2 messages that wait, a further one blocks, and the 2 are interrupted
    Then what blocked goes on, and every message is answered or interrupted

  # -- reject ----------------------------------------------------------------------------------

  Scenario Outline: A message is rejected while its thread has a run that <holds it>
    Given an open bridge on its own loop
    When a message with multitask_strategy="reject" arrives while a run of its thread <holds it>
    Then it is rejected at once, with a ThreadBusyError that names the other message
    When everything may end
    Then a later message with multitask_strategy="reject" is answered

    Examples:
      | holds it                          |
      | runs                              |
      | waits for a slot                  |
      | was cancelled, and cleans up      |

  Scenario: Messages on other threads, or on none, are not rejected
    Given an open bridge on its own loop
    When a run is active on a thread, and messages with multitask_strategy="reject" go elsewhere
    Then none of them is rejected

  Scenario: A result that passes through neither rejects, nor is rejected, nor interrupts
    Given an open bridge on its own loop
    When a failed result passes through a thread that has a run, once under every policy
    Then every one of them passes through after that run, which is answered

  # -- enqueue ---------------------------------------------------------------------------------

  Scenario: With max_pending_per_thread a thread's queue is bounded
    Given an open bridge on its own loop with max_pending_per_thread=2
    When a thread has a run and 2 messages that wait, one more is sent to it, and one to another
    Then the first is rejected with the words "and 2 more that wait", and the other is not
    When one that waits is cancelled, and one more is sent
    Then the last one waits

  Scenario: A message that is cancelled while it waits for a slot takes up no room on its thread
    Given an open bridge on its own loop with max_concurrency=1, max_pending_per_thread=1
    When a run has the slot, the first of 2 messages on another thread is cancelled, and one more is sent
    And everything may end
    Then the 2 that were not cancelled are answered

  # -- streams ---------------------------------------------------------------------------------

  Scenario Outline: A stream with "<strategy>" and errors="<errors>" emits <what>
    Given an open bridge on its own loop
    When 3 messages of a thread go through <operator> with <options>, and the graph may end
    Then the stream consists of <what>, and completes

    Examples:
      | operator | strategy  | errors | options                                                         | what                                 |
      | invoke   | interrupt | raise  | multitask_strategy="interrupt"                                  | 2 ok                                 |
      | invoke   | interrupt | skip   | multitask_strategy="interrupt", errors="skip"                   | 2 ok                                 |
      | invoke   | interrupt | emit   | multitask_strategy="interrupt", errors="emit"                   | 0 interrupted, 1 interrupted, 2 ok   |
      | invoke   | interrupt | emit   | multitask_strategy="interrupt", errors="emit", ordered=True     | 0 interrupted, 1 interrupted, 2 ok   |
      | invoke   | reject    | raise  | multitask_strategy="reject"                                     | 0 ok                                 |
      | invoke   | reject    | emit   | multitask_strategy="reject", errors="emit"                      | 1 rejected, 2 rejected, 0 ok         |
      | invoke   | reject    | emit   | multitask_strategy="reject", errors="emit", ordered=True        | 0 ok, 1 rejected, 2 rejected         |
      | invoke   | enqueue   | raise  | multitask_strategy="enqueue"                                    | 0 ok, 1 ok, 2 ok                     |
      | stream   | interrupt | raise  | multitask_strategy="interrupt", stream_mode="values"            | 0 chunk, 1 chunk, 2 chunk, 2 chunk, 2 ok |
      | stream   | reject    | raise  | multitask_strategy="reject", stream_mode="updates"              | 0 chunk, 0 ok                        |

  Scenario: astream raises what a policy does to its message
    Given an open bridge on its own loop
    When a run is active on a thread, and astream goes to it with multitask_strategy="reject"
    Then iterating over it raises ThreadBusyError

  # -- the model -------------------------------------------------------------------------------

  @once
  Scenario Outline: In every sequence of 5 steps the policies do what the model of a thread says<limited>
    Given an open bridge on an adopted loop with <options>
    When 5 steps of sending, ending and cancelling are made on a thread, in each of 3125 sequences
    Then after each step the same had run, and the same had become of all, as in the model

    Examples:
      | limited                         | options                  |
      | , with any number that may wait  | max_concurrency=4        |
      | , with one message that may wait | max_pending_per_thread=1 |

  @once
  Scenario Outline: Random histories of several threads go as in the model, with <bounds>
    Then 60 random histories of 40 steps go as in the model of thread policies: <bounds>

    Examples:
      | bounds                                      |
      | max_concurrency=4                           |
      | max_concurrency=1                           |
      | max_concurrency=2, max_pending_per_thread=1 |
      | max_concurrency=1, max_pending_per_thread=2 |

  @once
  Scenario Outline: Random histories show that <fault>
    Given a bridge in which <fault>
    Then one of 100 random histories of 40 steps goes otherwise than in the model of thread policies: max_concurrency=1, max_pending_per_thread=2

    Examples:
      | fault                                                 |
      | an interrupting message leaves those that wait        |
      | a cancelled message still takes up room on its thread |
      | the last message of a thread is the next              |
      | an interrupted message looks cancelled                |

  # -- many ------------------------------------------------------------------------------------

  Scenario: A thread with 10000 messages does not hold up 99 threads with one each
    Given an open bridge on its own loop with max_concurrency=2
    When 10000 messages wait on one thread, and then one on each of 99 others
    Then the 99 are answered before 300 of the 10000

  @long
  @once @unmeasured
  Scenario: 100000 threads leave nothing behind
    Given an open bridge on its own loop with max_concurrency=2
    When 100000 messages have run, each on a thread of its own, under every policy
    Then the scheduler knows no thread any more

  Scenario: Eight threads send under every policy to the same three threads
    Given an open bridge on its own loop
    When 8 threads send 100 messages each, under every policy, to 3 threads, at a switch interval of 1 us
    Then every future resolves, no two runs of a thread overlapped, and nothing is left of them
