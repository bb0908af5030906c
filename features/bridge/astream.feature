Feature: astream is a run's chunks in "async for", and join_stream the same chunks for a late reader

  Scenario Outline: async for gets the chunks and the result, on <where>
    Given an open bridge on <home> loop
    When a graph of 20 steps is streamed by "async for" on <where>
    Then it has got 20 chunks in order, and the result

    Examples:
      | where             | home       |
      | another loop      | its own    |
      | the bridge's loop | an adopted |

  Scenario: Two streams at once on one loop, each with its own chunks
    Given an open bridge on its own loop
    When two graphs of 50 steps are streamed by "async for" at once
    Then each has got its own 50 chunks in order, and its result

  Scenario Outline: Leaving the loop by <way> ends the run
    Given an open bridge on its own loop
    When a stream that would go on forever is left by <way> at the 3rd chunk
    Then the run ends, and the registry is idle

    Examples:
      | way          |
      | break        |
      | an exception |
      | cancellation |
      | aclose       |
      | async with   |

  Scenario: A stream that is never iterated over ends its run when it is dropped
    Given an open bridge on its own loop
    When a stream that would go on forever is made, and dropped
    Then the run ends, and the registry is idle

  Scenario: A step that is cancelled has taken nothing
    Given an open bridge on its own loop
    When a step of a stream times out before its chunk, and the stream goes on
    Then it has got every chunk once, and the result

  Scenario: Steps that are cancelled leave nothing behind in a stream that continues
    Given an open bridge on its own loop
    When 100 steps of a stream are cancelled before their chunk
    Then none of them is kept

  Scenario Outline: A run that <ends>, with errors="<errors>": <what>
    Given an open bridge on its own loop
    When a stream of a run that <ends> is read to its end, with errors="<errors>"
    Then it has got chunk 0, and then <what>

    Examples:
      | ends         | errors | what                            |
      | fails        | raise  | ValueError                      |
      | fails        | emit   | a result with status error      |
      | is cancelled | raise  | RunCancelledError               |
      | is cancelled | emit   | a result with status cancelled  |
      | times out    | raise  | RunTimeoutError                 |
      | times out    | emit   | a result with status timed_out  |

  Scenario Outline: A loop that reads streams is not blocked for room that only they can make: <call>
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a loop has a stream that holds up its run, and the room is taken, and <call> is called there
    Then BlockingCallError is raised, which says "which is reading another run's stream"
    And the stream is read to its end

    Examples:
      | call               |
      | astream            |
      | create_future_task |

  Scenario: A node that waits for a stream that can only begin after it gets a DeadlockError
    Given an open bridge on its own loop with max_concurrency=1
    When a node streams another graph on the same bridge
    Then DeadlockError is raised

  # -- runs that are left to themselves

  Scenario: A detached stream neither holds its run up, nor ends it
    Given an open bridge on its own loop
    When a stream of 100 steps is detached at the 3rd chunk, and closed
    Then its run ends with its result

  Scenario: A run that waits for its reader continues when that detaches itself
    Given an open bridge on its own loop
    When a stream of 100 steps is detached once its run waits for the reader, and dropped
    Then its run ends with its result

  Scenario: A detached stream can still be read, and gets an error when it is too slow
    Given an open bridge on its own loop
    When a stream of 100 steps is detached at the 3rd chunk, and read on after the run has ended
    Then ChunksLostError is raised, which says "chunk 3 is no longer kept"

  Scenario: A run that was left to itself can be joined
    Given an open bridge on its own loop
    When a resumable stream of 20 steps is detached at the 3rd chunk and closed, and a reader joins
    Then the reader has got the numbers from 3 to the last, and the result

  Scenario: A joined stream has no run to leave to itself: that waits for its own reader as before
    Given an open bridge on its own loop
    When a resumable stream of 100 steps is joined, and the joined one is detached
    Then the first reader has got everything

  Scenario Outline: A stream may be detached <when>
    Given an open bridge on its own loop
    When a stream of <steps> steps is detached <when>
    Then the run of that stream ends as <how>

    Examples:
      | when                     | steps | how       |
      | before its first step    | 3     | ok        |
      | twice                    | 3     | ok        |
      | after its end            | 3     | ok        |
      | after it was closed      | 1000  | cancelled |
      | on no loop at all        | 3     | ok        |

  Scenario: A loop whose stream is detached may wait for room
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a loop has a detached stream, and waits in create_future_task for the room that it takes
    Then the stream is read to its end

  Scenario: Another thread may detach a stream in the middle of a step of its reader
    Given an open bridge on its own loop
    When streams are detached by another thread while their reader takes a chunk, each at another one
    Then every run ends with its result

  @tdd_expected_fail
  Scenario: Control: a chunk that is taken after the detaching would hold the run up again
    Given an open bridge on its own loop
    And windows that note what is taken without looking whether the reader is detached
    When streams are detached by another thread while their reader takes a chunk, each at another one
    Then every run ends with its result

  # -- late readers

  Scenario: A late reader gets the chunks from a number on, then the rest, and the result
    Given an open bridge on its own loop
    When a resumable stream has had 10 chunks, and a reader joins behind number 5
    And the rest comes
    Then the reader has got the numbers from 6 to the last, and the result

  Scenario: A late reader may begin at a number that is still to come
    Given an open bridge on its own loop
    When a resumable stream has had 10 chunks, and a reader joins behind number 12
    And the rest comes
    Then the reader has got the numbers from 13 to the last, and the result

  Scenario: A reader may join by a chunk, and by the message
    Given an open bridge on its own loop
    When a resumable stream has had 10 chunks, and readers join by the chunk 7, by the message, and by its id
    And the rest comes
    Then they have got the chunks from 8 on, from 0 on, and from 0 on, and the result

  Scenario: A reader that comes too late gets an error: the chunks are gone
    Given an open bridge on its own loop
    When a stream of resumable=4 has had 10 chunks, and a reader joins behind number 2
    Then ChunksLostError is raised, which says "chunk 3 is no longer kept; the first one that is kept is 6"

  Scenario: A reader that is too slow gets an error, and does not hold the run up
    Given an open bridge on its own loop
    When a reader of resumable=4 pauses while 100 more chunks come
    Then ChunksLostError is raised, which says "is no longer kept"

  Scenario: A run of astream can be joined too, and continues when that reader leaves
    Given an open bridge on its own loop
    When a resumable astream is joined by a second reader, which leaves early
    Then the first reader has got everything

  Scenario: A late reader that is closed while it waits for a chunk ends, and another one continues
    Given an open bridge on its own loop
    When two readers wait for the 11th chunk of a resumable stream, and one of them is closed
    Then that one has ended, and the other gets the rest

  Scenario Outline: There is nothing to join for <what>
    Given an open bridge on its own loop
    When a reader joins <what>
    Then ChunksLostError is raised, which says "no run on message"

    Examples:
      | what                      |
      | a run that has ended      |
      | a run that keeps no chunk |
      | a run that is not a stream |
