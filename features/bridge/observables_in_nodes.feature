Feature: Nodes await streams, and emit into streams, also of their own bridge, and never wait forever

  # -- a node awaits a stream through its own bridge

  Scenario Outline: A node that waits by <way> for a stream through its own bridge has its results
    Given an open bridge on <home> loop with max_concurrency=2
    When a node waits by <way> for the answers to 1, 2 and 3 through its own bridge
    Then the node has answered [2, 4, 6]
    And the bridge goes on as if nothing had been

    Examples:
      | way               | home       |
      | await             | its own    |
      | to_future         | its own    |
      | to_async_iterable | its own    |
      | run() in a thread | its own    |
      | await             | an adopted |
      | to_async_iterable | an adopted |

  Scenario Outline: A node that waits by <way> for <what> is refused with the remedy
    Given an open bridge on its own loop with <options>
    When a node waits by <way> for <what>
    Then DeadlockError is raised, which says "<remedy>"
    And the bridge goes on as if nothing had been

    Examples:
      | way               | what                              | options                            | remedy                |
      | await             | a stream that needs its slot      | max_concurrency=1                  | raise max_concurrency |
      | to_future         | a stream that needs its slot      | max_concurrency=1                  | raise max_concurrency |
      | to_async_iterable | a stream that needs its slot      | max_concurrency=1                  | raise max_concurrency |
      | run() in a thread | a stream that needs its slot      | max_concurrency=1                  | raise max_concurrency |
      | await             | a stream on its own thread        | max_concurrency=2                  | to other threads      |
      | to_async_iterable | a stream on its own thread        | max_concurrency=2                  | to other threads      |
      | run() in a thread | a stream on its own thread        | max_concurrency=2                  | to other threads      |
      | await             | a stream that goes on             | max_concurrency=1                  | raise max_concurrency |
      | to_async_iterable | a stream that goes on             | max_concurrency=1                  | raise max_concurrency |
      | await             | a stream whose source has no room | max_concurrency=1, max_pending=1   | raise max_concurrency |
      | run() on its loop | a stream through its own bridge   | max_concurrency=2                  | use 'await'           |

  @tdd_expected_fail
  Scenario: Where a semaphore bounds what runs, a node that awaits a stream that needs its slot waits forever
    When a node under a plain semaphore awaits a stream that needs its slot, in virtual time
    Then it has ended

  Scenario: Of nodes that hold every slot and await streams, one is refused, and the others continue
    Given an open bridge on its own loop with max_concurrency=3
    When 3 nodes hold its slots, and each awaits a stream through the same bridge
    Then 1 of them ended with DeadlockError, "raise max_concurrency", and 2 have a result
    And the bridge goes on as if nothing had been

  Scenario Outline: A node may wait by <way> for <what>
    Given an open bridge on its own loop with max_concurrency=<slots>
    When a node waits by <way> for <what>
    Then the node has answered <answer>
    And the bridge goes on as if nothing had been

    Examples:
      | way               | what                                           | slots | answer |
      | await             | a stream of nothing                            | 1     | []     |
      | to_async_iterable | a stream of nothing                            | 1     | []     |
      | run() in a thread | a stream of nothing                            | 1     | []     |
      | await             | a stream that another bridge executes          | 1     | [2]    |
      | to_async_iterable | a stream that another bridge executes          | 1     | [2]    |
      | await             | streams that begin as results arrive           | 2     | [4, 8] |
      | to_async_iterable | streams that begin as results arrive           | 2     | [4, 8] |
      | run() in a thread | streams that begin as results arrive           | 2     | [4, 8] |
      | await             | the first of a stream that is partly stuck     | 2     | [2]    |
      | to_async_iterable | the first of a stream that is partly stuck     | 2     | [2]    |

  Scenario: A thread may wait by run() for streams that begin as results arrive, on the bridge's loop
    Given an open bridge on its own loop
    When a thread waits by run() for streams that begin as results arrive
    Then run() has returned [4, 8]
    And the bridge goes on as if nothing had been

  Scenario Outline: Nodes that wait by <way> for room that only messages of their thread have are not left
    Given an open bridge on its own loop with max_concurrency=4, max_pending=4
    When a source emits 10 messages on one thread, whose nodes wait by <way> for a pulled stream
    Then each of the 10 has ended, with its answers or with DeadlockError
    And the bridge goes on as if nothing had been

    Examples:
      | way       |
      | await     |
      | to_future |

  Scenario: A node awaits a stream of ten thousand messages through its own bridge
    Given an open bridge on its own loop with max_concurrency=8
    When a node awaits the answers to 10000 messages through its own bridge
    Then the node has answered 10000

  Scenario Outline: Results are not more than max_buffered ahead of a node that reads them <how>
    Given an open bridge on <home> loop with max_concurrency=8
    When <who> reads the answers to 1000 messages <how>, with max_buffered=4
    Then it has read all 1000, and no more than <most> runs were ever ahead of it

    Examples: with one more, which it has in hand
      | who         | how                   | home       | most |
      | a node      | in any order          | its own    | 5    |
      | a node      | in their order        | its own    | 5    |
      | a node      | in any order          | an adopted | 5    |
      | a node      | of two stages         | its own    | 9    |
      | a coroutine | in any order          | its own    | 5    |
      | a coroutine | in their order        | its own    | 5    |

  Scenario Outline: A reader that is slower than streams that <how> gets all, and they are not ahead of it
    Given an open bridge on <home> loop with max_concurrency=8
    When a coroutine slowly reads 120 answers of streams that <how>, by <operator>, with max_buffered=3
    Then it has read 120 answers, and no more than 4 runs were ever ahead of it

    Examples: with one more, which it has in hand
      | how                     | operator | home       |
      | are subscribed to again | invoke   | its own    |
      | are subscribed to again | stream   | its own    |
      | are subscribed to again | invoke   | an adopted |
      | are tried again         | invoke   | its own    |
      | follow each other       | invoke   | its own    |
      | are merged              | invoke   | its own    |
      | are merged              | stream   | its own    |
      | are merged              | invoke   | an adopted |
      | begin for each item     | invoke   | its own    |
      | begin for each group    | invoke   | its own    |
      | begin for each result   | invoke   | its own    |

  Scenario: Streams that begin for each item of an endless reading are forgotten when they have ended
    Given an open bridge on its own loop
    When a node reads the answers of 50 streams, one after the other
    Then the iterator knows of no stream that has ended

  Scenario: A loop that is blocked by what a reader has withheld goes on when the reader leaves
    Given an open bridge on its own loop
    When a reader of one item leaves, while a result waits for room in a second bridge
    Then the bridge answers the next message

  @counted_references
  Scenario Outline: Of an iteration that <ends>, nothing is left to the collector
    Given an open bridge on its own loop
    When a coroutine iterates over the answers of an async function, and <ends>
    Then the function is freed by reference counts

    Examples:
      | ends               |
      | reads all          |
      | leaves in the middle |

  Scenario Outline: Chunks of a stream are not more than max_buffered ahead of <who> that reads them <how>
    Given an open bridge on its own loop with max_concurrency=8
    When <who> reads 50 chunks of each of 20 runs <how>, with max_buffered=<bound>
    Then each chunk and each result was read once, those of each run in order
    And no more than <bound> items were ever ahead of it

    Examples:
      | who         | how            | bound |
      | a coroutine | in any order   | 4     |
      | a coroutine | in any order   | 1     |
      | a coroutine | in their order | 4     |
      | a coroutine | in their order | 1     |
      | a node      | in any order   | 4     |
      | a node      | in any order   | 1     |
      | a node      | in their order | 4     |

  Scenario: Chunks that an operator drops do not hold up the runs of a reader
    Given an open bridge on its own loop with max_concurrency=8
    When a coroutine reads the results alone of a stream of 20 runs of 50 chunks, with max_buffered=1
    Then it has read 20 results

  Scenario: A node that holds up a run by not reading its chunks, and waits for its thread, is told so
    Given an open bridge on its own loop
    When a node reads the first of 9 chunks, and then waits for another message on the thread of their run
    Then DeadlockError is raised, which says "would wait forever"

  Scenario: A result that is being emitted counts, when a reader makes room for others
    Given an open bridge on its own loop
    When a reader of at most 2 answers takes the first one of 4 while the second one is being emitted, and waits
    Then the reader gets all 4, and no more than 3 runs had begun by then

  Scenario Outline: A source that is pulled is not ahead of <who> that reads the answers <how>, with little room
    Given an open bridge on its own loop with max_concurrency=8, max_pending=8
    When <who> reads the answers to 200 items of <source>, <how>, with max_buffered=4
    Then it has read all 200, and no more than <most> runs were ever ahead of it

    Examples: of two stages, seven of the first are active, eight wait, four are to be read, one is in hand
      | who         | source             | how           | most |
      | a node      | a generator        | of one stage  | 5    |
      | a node      | an async generator | of one stage  | 5    |
      | a node      | a generator        | of two stages | 20   |
      | a node      | an async generator | of two stages | 20   |
      | a coroutine | a generator        | of two stages | 20   |

  Scenario Outline: A node that <reads> a source that is pulled, whose room runs of the node's own thread have, is told so
    Given an open bridge on its own loop with max_concurrency=4, max_pending=1
    When a node <reads> the answers to items of <source>, while a message on its own thread has all room
    Then DeadlockError is raised, which says "its source waits for room (max_pending)"

    Examples:
      | reads         | source             |
      | awaits        | a generator        |
      | iterates over | a generator        |
      | awaits        | an async generator |
      | iterates over | an async generator |

  Scenario Outline: A node that <reads> a source that is pulled waits for room that a run of another thread has
    Given an open bridge on its own loop with max_concurrency=4, max_pending=1
    When a node <reads> the answers to items of <source>, while a message on another thread has all room
    Then the node has answered <content>

    Examples:
      | reads         | source             | content   |
      | awaits        | a generator        | [2]       |
      | iterates over | a generator        | [0, 1, 2] |
      | awaits        | an async generator | [2]       |
      | iterates over | an async generator | [0, 1, 2] |

  Scenario: Messages that wait for a node's own thread do not hide behind those that are withheld
    Given an open bridge on its own loop with max_concurrency=8
    When a node iterates over 20 answers on its own thread, and then 20 on others
    Then DeadlockError is raised, which says "to other threads"
    And the bridge goes on as if nothing had been

  # -- a node emits into a stream

  Scenario Outline: <Kind> nodes that emit into the stream that feeds them are all accounted for with <options>
    Given an open bridge on its own loop with max_concurrency=2, <options>
    When <kind> nodes emit two messages each into the stream that feeds them, 7 deep
    Then every message has a result, <those>
    And no more than <bound> messages were ever in flight

    Examples:
      | Kind  | kind  | options                                 | those                   | bound |
      | Async | async | max_threads=2                           | all of them ok          | 255   |
      | Sync  | sync  | max_threads=2                           | all of them ok          | 255   |
      | Async | async | max_pending=4, overflow='error'         | some of them rejected   | 6     |
      | Async | async | max_pending=4, overflow='drop_newest'   | some of them rejected   | 6     |
      | Async | async | max_pending=4, overflow='drop_oldest'   | some of them rejected   | 6     |
      | Async | async | max_pending=4, overflow='latest'        | some of them rejected   | 6     |
      | Sync  | sync  | max_pending=4, overflow='error'         | some of them rejected   | 6     |
      | Sync  | sync  | max_pending=4, overflow='drop_newest'   | some of them rejected   | 6     |
      | Sync  | sync  | max_pending=4, overflow='drop_oldest'   | some of them rejected   | 6     |
      | Sync  | sync  | max_pending=4, overflow='latest'        | some of them rejected   | 6     |

  Scenario Outline: <Kind> nodes that emit more than there is room for are refused where they would block forever
    Given an open bridge on its own loop with max_concurrency=2, max_pending=4, overflow='block'
    When <kind> nodes emit two messages each into the stream that feeds them, 7 deep
    Then the stream has ended with <error>
    And no more than 6 messages were ever in flight
    And the bridge goes on as if nothing had been

    Examples:
      | Kind  | kind  | error             |
      | Async | async | BlockingCallError |
      | Sync  | sync  | DeadlockError     |

  @tdd_expected_fail
  Scenario: Tasks that emit into the stream that feeds plain tasks wait without a bound
    When plain tasks emit two messages each into the stream that feeds them, 7 deep
    Then no more than 6 messages were ever in flight

  # -- iterating, with a bound

  Scenario Outline: A source in <count> threads is never more than max_buffered ahead, and loses nothing
    When <count> threads emit 2000 items each, to what is read by to_async_iterable with max_buffered=4
    Then all of them were read once, those of each thread in order
    And the threads were never more than <ahead> items ahead

    Examples:
      | count | ahead |
      | 1     | 6     |
      | 4     | 12    |

  Scenario: What was withheld from a reader begins when the end of the source has emitted a result
    Given an open bridge on its own loop
    When the thread of a source of two messages ends it, and emits the first result, which is read meanwhile
    Then the reader has got both results

  Scenario: A room that one thread frees does not disturb another, which tells all rooms what was read
    When a room of a reader is freed in one thread, while another one goes through all of them
    Then it went through them without an error, and the room is gone

  Scenario: What was withheld from a reader begins when a chunk has been emitted
    Given an open bridge on its own loop
    When a node waits for the next message after its first chunk, which is read before it is emitted
    Then the chunk was read, and both runs have ended

  @tdd_expected_fail
  Scenario: A source whose items are put into a queue on the loop is ahead without a bound
    When 1 threads emit 2000 items each, to what is read by a queue on the loop with max_buffered=4
    Then all of them were read once, those of each thread in order
    And the threads were never more than 6 items ahead

  Scenario Outline: With overflow="<overflow>", <read> of six items is read, when <emitter> emits
    When <emitter> emits 1 to 6 before anything is read, with max_buffered=3, overflow="<overflow>"
    Then <read> was read, <dropped> were dropped, and then came <end>

    Examples:
      | overflow    | emitter            | read        | dropped | end               |
      | drop_newest | the loop's thread  | 1 2 3       | 3       | the end           |
      | drop_oldest | the loop's thread  | 4 5 6       | 3       | the end           |
      | error       | the loop's thread  | 1 2 3       | 0       | BacklogFullError  |
      | block       | the loop's thread  | 1 2 3       | 0       | BlockingCallError |
      | block       | another loop       | 1 2 3       | 0       | BlockingCallError |
      | block       | a thread           | 1 2 3 4 5 6 | 0       | the end           |
      | drop_newest | a thread           | 1 2 3       | 3       | the end           |
      | drop_oldest | a thread           | 4 5 6       | 3       | the end           |
      | error       | a thread           | 1 2 3       | 0       | BacklogFullError  |
      | block       | an endless source  | 1 2 3       | 0       | BlockingCallError |

  Scenario Outline: Leaving an iteration by <way> disposes of its source, and frees the thread that it blocks
    When a thread emits without end to what is read by to_async_iterable, which is left by <way>
    Then the source is disposed of, and the thread has ended

    Examples:
      | way                      |
      | break                    |
      | an exception             |
      | a cancellation           |
      | aclose()                 |
      | dropping it              |
      | closing its loop         |

  Scenario Outline: A stream that <ends> is the end of the iteration, behind its items
    When a stream that <ends> is read by to_async_iterable
    Then 1 2 was read, and then <end>

    Examples:
      | ends                        | end                     |
      | fails with ValueError       | ValueError was raised   |
      | completes                   | the end                 |
      | fails with StopIteration    | RuntimeError was raised |
      | fails with StopAsyncIteration | RuntimeError was raised |

  Scenario: A run that is blocked for its reader, which waits for it, is refused instead
    Given an open bridge on its own loop
    When a node reads what a sync node emits, and waits for that one before it has read all
    Then DeadlockError is raised, which says "go on without the other's result"
    And the bridge goes on as if nothing had been

  # -- awaiting the last item

  Scenario Outline: to_future gives <what> of a stream that a thread emits, and wakes the loop for it
    When <what> of a stream that a thread emits is awaited by to_future
    Then awaiting gives <outcome>

    Examples:
      | what              | outcome                         |
      | the last item     | 3                               |
      | the first item    | 1                               |
      | the error         | ValueError                      |
      | the cancellation  | CancelledError                  |
      | the StopIteration | RuntimeError                    |
      | the last of none  | SequenceContainsNoElementsError |

  Scenario: Cancelling what awaits by to_future disposes of the source
    When what awaits a stream by to_future is cancelled
    Then the source is disposed of

  Scenario Outline: <what> is refused, with the remedy
    When the code under test calls "<call>", without a bridge
    Then <error> is raised, which says "<words>"

    Examples:
      | what                   | call                                     | error                | words            |
      | a bound of nothing     | to_async_iterable(max_buffered=0)(empty)  | InvalidArgumentError | max_buffered     |
      | an unknown policy      | to_async_iterable(overflow='x')(empty)    | InvalidArgumentError | 'drop_oldest'    |
      | what is not a stream   | to_async_iterable()([1])                  | InvalidTypeError     | source.pipe(...) |
      | what is not a stream   | to_future()([1])                          | InvalidTypeError     | source.pipe(...) |
