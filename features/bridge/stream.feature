Feature: stream emits every chunk of every run, and its result behind them

  # -- what a chunk is

  Scenario: A chunk says which message, mode and subgraph it is of, and its number
    Given an open bridge on its own loop
    When a message with metadata goes through stream of a graph in a graph, with the modes updates and values and subgraphs
    Then the chunks have that message, thread and metadata, a mode, a namespace, and the numbers from 0
    And the last item is the result, which has no mode and no number

  Scenario: Chunks are equal by all their fields, can be pickled, and have a repr
    Then a chunk is equal to its copies, has all its fields in them, and shows its mode and number

  Scenario: The tokens of a chat model are chunks
    Given an open bridge on its own loop
    When a question goes through stream of a chat model's graph in the mode messages
    Then the chunks are the words of the answer, one by one, and the result has the whole answer

  Scenario: The result of a graph whose output is a part of its state is that part, as by ainvoke
    Given an open bridge on its own loop
    When a graph with an output schema of its own is streamed
    Then its chunks have the whole state, and its result has what "ainvoke" returns

  Scenario: A Runnable that is not a graph streams by itself, and its result is the sum
    Given an open bridge on its own loop
    When a chat model itself goes through stream
    Then its chunks have no mode, and its result is the message that they make

  Scenario Outline: A <function> has no chunks, and its result
    Given an open bridge on its own loop
    When reactivex.of(1, 2, 3) goes through stream of <function>
    Then the subscriber gets 1, 2, 3, completed

    Examples:
      | function          |
      | an async function |
      | a sync function   |

  Scenario: A result that is not ok passes through, and nothing runs
    Given an open bridge on its own loop
    When a failed result goes through stream with errors="emit"
    Then it comes out unchanged, alone

  Scenario Outline: A call that cannot be meant is refused: <call>
    Given an open bridge on its own loop
    And a graph of the nodes first and second
    When the code under test calls "bridge.<call>"
    Then <error> is raised, which says "<words>"
    And nothing was ever submitted to the bridge

    Examples:
      | call                                            | error                | words                                        |
      | stream(graph, stream_mode='update')             | InvalidArgumentError | values, not 'update'                         |
      | stream(graph, stream_mode=['values', 'tokens']) | InvalidArgumentError | stream_mode must be one or more of           |
      | stream(graph, stream_mode=[])                   | InvalidTypeError     | must be a mode or a list of modes, not []    |
      | stream(graph, stream_mode=7)                    | InvalidTypeError     | must be a mode or a list of modes, not 7     |
      | stream(graph, stream_mode=[7])                  | InvalidTypeError     | must be a list of strings, and has 7         |
      | stream(graph, subgraphs=1)                      | InvalidTypeError     | subgraphs must be True or False, not 1       |
      | stream(print, subgraphs=True)                   | InvalidArgumentError | subgraphs can only be passed with            |
      | stream(print, stream_mode='values')             | InvalidArgumentError | stream_mode can only be passed with          |
      | stream(graph.bind(version='v2'))                | InvalidArgumentError | bound to another version of LangGraph's      |
      | invoke(graph.bind(version='v2'))                | InvalidArgumentError | bound to another version of LangGraph's      |
      | create_future_task(graph.bind(version='v2'), {}) | InvalidArgumentError | bound to another version of LangGraph's    |
      | stream(graph, resumable=0)                      | InvalidArgumentError | resumable must be a whole number from 1      |
      | stream(graph, errors='ignore')                  | InvalidArgumentError | errors must be 'raise', 'emit' or 'skip'     |
      | stream(graph, multitask_strategy='switch')      | InvalidArgumentError | multitask_strategy must be 'enqueue',        |
      | stream(graph, max_concurrency=0)                | InvalidArgumentError | max_concurrency must be a whole number       |
      | astream(graph, {}, stream_mode='tokens')        | InvalidArgumentError | stream_mode must be one or more of           |
      | astream(graph, {}, errors='skip')               | InvalidArgumentError | errors must be 'raise' or 'emit'             |
      | astream(graph, {}, thread_id=7)                 | InvalidTypeError     | thread_id must be a string                   |
      | join_stream('none')                             | ChunksLostError      | no run on message none is in flight          |
      | join_stream(7)                                  | InvalidTypeError     | message must be a StreamMessage or the id of one |
      | join_stream('none', last_sequence=-1)           | InvalidArgumentError | last_sequence must be a whole number from 0  |
      | join_stream('none', errors='skip')              | InvalidArgumentError | errors must be 'raise' or 'emit'             |

  # -- ends

  Scenario Outline: A run that fails after a chunk, with errors="<errors>": <items>
    Given an open bridge on its own loop
    When a run goes through stream that fails after one chunk, with errors="<errors>"
    Then the subscriber gets <items>

    Examples:
      | errors | items                                   |
      | raise  | chunk 0, error of the second step       |
      | emit   | chunk 0, a result with status error, completed |
      | skip   | chunk 0, completed                      |

  Scenario: The chunks of a failed attempt stay emitted, and the numbers continue
    Given an open bridge on its own loop
    When a run goes through stream that fails after one chunk, and is tried again from its checkpoint
    Then the subscriber gets chunk 0, chunk 1, a result, completed

  Scenario: A run whose time is over ends its stream, and nothing follows the result
    Given an open bridge on its own loop
    When a run goes through stream that writes and goes on when it is cancelled, with a timeout
    Then what follows its chunks is a result that has timed out, and nothing follows that

  Scenario Outline: With multitask_strategy="<policy>", nothing of the run that gave way follows its result
    Given an open bridge on its own loop
    When a run of a subgraph gives way to another message of its thread, with multitask_strategy="<policy>"
    Then its chunks are before its result, which is interrupted, and the other run is complete

    Examples:
      | policy    |
      | interrupt |
      | rollback  |

  Scenario: 10,000 messages, and a cleanup in the middle: each message has one result, behind its chunks
    Given an open bridge on its own loop
    When 10000 messages go through stream, and the bridge cleans up once in the middle
    Then each message has one result, behind its chunks, and the stream is complete

  Scenario: A run that its subscriber cancels in the middle of a burst: nothing follows its result
    Given an open bridge on its own loop
    When a node writes 10 chunks at once, and the subscriber cancels all runs at the 3rd
    Then the subscriber gets chunk 0, chunk 1, chunk 2, a result with status cancelled, completed

  Scenario: A graph that asks streams its question, and then a result with the question
    Given an open bridge on its own loop
    When a graph asks through stream, and is answered through stream
    Then the question is among the chunks and in the result, and the answer leads to the second result

  Scenario: Runs of one thread stream one after the other
    Given an open bridge on its own loop
    When three messages of one thread and three of another go through stream
    Then no chunk of a run comes before the result of the run before it on its thread

  Scenario: Disposing in the middle of a subgraph ends the subgraph, and the run leaves the registry
    Given an open bridge on its own loop
    When a subscriber disposes at the 3rd chunk of a subgraph that would go on forever
    Then the subgraph has stopped, the registry is idle, and nothing came after the 3rd

  Scenario: Leaving "astream" alone in the middle of a subgraph lets the subgraph continue
    When the loop over bare "astream" is left at the 3rd chunk of a subgraph
    Then the subgraph goes on, without a reader of its chunks

  Scenario: Chunks and results of many runs and threads reach the subscriber one at a time
    Given an open bridge on its own loop
    When 4 threads send 25 messages each through stream of a graph of 3 steps, and some are cancelled
    Then the subscriber was never entered twice, and each run's chunks are in order before its result

  Scenario: An observer that raises ends the stream; the runs end
    Given an open bridge on its own loop
    When a subscriber of stream raises at the 2nd chunk
    Then the log names the error of the observer, and what became of its runs
    And the registry becomes idle

  Scenario: A stream that is awaited delivers on the awaiting loop, and its run waits for that
    Given an open bridge on its own loop
    When a stream of 500 chunks is awaited on a loop of its own, whose first delivery takes its time
    Then all chunks were delivered there in order, and the run was never more than 40 ahead

  # -- one slow consumer

  Scenario: A slow consumer slows its own run, not the others
    Given an open bridge on its own loop
    When one consumer takes 5 chunks of 500 and pauses, while another takes all of 500
    Then the other has got all, and the run of the first has done no more than 30 steps
    And the first gets the rest when it goes on

  # -- ordered

  Scenario: ordered=True emits whole runs in input order, the first live
    Given an open bridge on its own loop
    When three runs go through stream with ordered=True, and the last ends first
    Then chunks of the first came while it ran, and all items are in input order

  Scenario: A run that is held back waits when 64 of its chunks are held back
    Given an open bridge on its own loop
    When a run of 500 chunks is behind one that waits, with ordered=True
    Then it has made no more than 70 chunks
    And all items have come in input order

  Scenario: The first run gets what it needs from runs that are held back
    Given an open bridge on its own loop with max_concurrency=2
    When the first run, with ordered=True, calls another one while one of 500 chunks is held back
    Then all items have come in input order

  Scenario: A run that is held back does not wait for a first run that needs its slot to begin
    Given an open bridge on its own loop with max_concurrency=1
    When the first run, with ordered=True, waits behind its thread, and one of 500 chunks runs
    Then all items have come in input order
