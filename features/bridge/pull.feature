Feature: from_iterable takes an item when the bridge has room for it

  Scenario Outline: Of an endless <source>, no more items are taken than there is room for
    Given an open bridge on <home> loop with max_concurrency=2, max_pending=3
    When an endless <source> is subscribed to <where>, with a graph that holds
    Then 6 items were taken, and no more until a run ends

    Examples:
      | source               | where           | home       |
      | async generator      | in a thread     | its own    |
      | async generator      | in a thread     | an adopted |
      | async generator      | on another loop | its own    |
      | async generator      | on its loop     | an adopted |
      | generator            | in a thread     | its own    |
      | generator            | on its loop     | an adopted |

  @tdd_expected_fail
  Scenario: An endless async generator that is iterated over and pushed is taken without end
    Given an open bridge on its own loop with max_concurrency=2
    When an endless async generator is pushed through a graph that holds, for 1,000 turns
    Then 6 items were taken, and no more until a run ends

  Scenario Outline: All items of <source> arrive, in order, and the stream completes
    Given an open bridge on <home> loop with max_concurrency=2, max_pending=1<policy>
    When <source> goes through an ordered stage
    Then the results are those of all items, in order, and the end is completed

    Examples:
      | source                         | home       | policy                   |
      | an async generator of 50 items | its own    |                          |
      | an async generator of 50 items | an adopted |                          |
      | an async iterator of 50 items  | its own    |                          |
      | a generator of 50 items        | its own    |                          |
      | a list of 50 items             | its own    |                          |
      | an async generator of 0 items  | its own    |                          |
      | a list of 0 items              | its own    |                          |
      | an async generator of 50 items | its own    | , overflow="drop_newest" |
      | an async generator of 50 items | its own    | , overflow="error"       |
      | a generator of 50 items        | its own    | , overflow="error"       |

  Scenario: A stream of pulled items can be awaited
    Given an open bridge on its own loop with max_concurrency=2, max_pending=1
    Then awaiting a stage behind an async generator of 50 items gives the results of all of them

  Scenario Outline: Disposing while a <source> <at> closes it, and ends what iterates
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When an endless <source> is disposed of while it <at>
    Then it is closed, and nothing iterates any more

    Examples:
      | source          | at                           |
      | async generator | waits for its next item      |
      | async generator | waits for room               |
      | async generator | emits an item                |
      | async generator | begins                       |
      | generator       | waits for room               |
      | generator       | emits an item                |

  Scenario: The room of runs that are cancelled by a dispose is not filled from the source again
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When an endless async generator that waits for room is disposed of, slowly
    Then it is closed, and nothing iterates any more

  Scenario Outline: An exception of <source> ends the stream with it, after the results before it
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When <source> raises behind 0 items
    Then the stream ends with its LookupError

    Examples:
      | source             |
      | an async generator |
      | a generator        |
      | an async iterable  |
      | an iterable        |

  Scenario Outline: When the bridge closes while a <source> <at>, its results come before the error
    Given an open bridge on <home> loop with max_concurrency=1, max_pending=1
    When the bridge is closed while an endless <source> <at>
    Then the results of what was taken come, then BridgeClosedError, and the source is closed

    Examples:
      | source          | at                      | home       |
      | async generator | waits for its next item | its own    |
      | async generator | waits for room          | its own    |
      | async generator | waits for its next item | an adopted |
      | async generator | waits for room          | an adopted |
      | generator       | waits for room          | its own    |

  Scenario Outline: An async generator without a stage that waits ends when its bridge on <home> loop closes
    Given an open bridge on <home> loop with max_concurrency=1, max_pending=1
    When the bridge is closed while a subscriber without a stage waits for the third item
    Then the items 0, 1 came, then BridgeClosedError, and the source is closed

    Examples:
      | home       |
      | its own    |
      | an adopted |

  Scenario Outline: A run that waits for the end of an endless <source> gets it when the bridge closes
    Given an open bridge on its own loop with max_concurrency=2, max_pending=1
    When the bridge is closed while a run waits for the end of a stream of an endless <source>
    Then the results of what was taken come, then BridgeClosedError, and the source is closed
    And the run that waited for it is answered

    Examples:
      | source          |
      | async generator |
      | generator       |

  Scenario Outline: A run that never ends keeps no <source> beyond the close of the bridge
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When the bridge is closed, while an endless <source> waits for room behind a stuck run
    Then the stream has ended, the source is closed, and no thread iterates any more

    Examples:
      | source          |
      | async generator |
      | generator       |

  Scenario: Behind two stages, the results of both come before the error when the bridge closes
    Given an open bridge on its own loop with max_concurrency=2, max_pending=1
    When the bridge is closed while runs of both stages behind an endless generator are active
    Then the result of the second stage comes, then BridgeClosedError

  Scenario Outline: Where <what>, an endless <source> is not started, and nothing is left of it
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When an endless <source> is subscribed to where <what>
    Then the stream ends with <error>
    And nothing is left of the source, and no coroutine that was never awaited

    Examples:
      | source          | what                           | error                |
      | generator       | no thread can be started       | RuntimeError         |
      | async generator | the loop is closed just then   | LoopUnavailableError |
      | async generator | the bridge is closed just then | BridgeClosedError    |
      | generator       | the bridge is closed just then | BridgeClosedError    |

  Scenario: When the loop on which it is iterated over ends, the stream does
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When an async generator waits for its next item on another loop, which ends
    Then the stream ends with LoopUnavailableError, and the source is closed

  Scenario: Operators that make several messages of an item have room for all of them
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When an async generator of 30 items goes through a flat_map to 3 each, and a stage
    Then 90 results come, and the end is completed

  Scenario: Items that lead to no message give their room up
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When an async generator of 50 items goes through a filter of every tenth, and a stage
    Then 5 results come, and the end is completed

  Scenario: Several sources and threads share the room of one bridge
    Given an open bridge on its own loop with max_concurrency=2, max_pending=2
    When 2 async generators, 2 generators and 2 threads of 300 messages each go through stages
    Then all 1800 messages have results, and no more than 9 were in flight

  Scenario Outline: An observer that raises ends what iterates over <source>
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When an endless <source> is subscribed to by an observer that raises
    Then it is closed, and nothing iterates any more
    And no item was taken behind the one at which it raised

    Examples:
      | source          |
      | async generator |
      | generator       |

  Scenario Outline: <What> is refused
    Given an open bridge on its own loop with max_concurrency=1<options>
    Then from_iterable of <source> raises <error>: "<words>"

    Examples:
      | What            | options         | source | error                | words                           |
      | A number        | , max_pending=1 | 5      | InvalidTypeError     | takes an iterable or async iterable |
      | A missing bound | , name="b"      | [1]    | InvalidArgumentError | make the bridge with max_pending |

  Scenario: On a closed bridge, a source ends at once
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When the bridge is closed, and an async generator of 50 items is subscribed to
    Then the stream ends with BridgeClosedError
