Feature: An exception of user code, of whatever class, affects only the code that raised it

  # -- code that the bridge calls

  Scenario Outline: <Exception> from <place> harms no other run
    Given an open bridge on its own loop with max_concurrency=2
    When <exception> is raised by <place>
    Then the registry becomes idle
    And 30 messages of 3 threads are answered, 2 at once at most, one at a time on a thread

    Examples:
      | Exception              | exception              | place                             |
      | No Exception           | no Exception           | a done-callback                   |
      | A CancelledError       | a CancelledError       | a done-callback                   |
      | A SystemExit           | a SystemExit           | a done-callback                   |
      | A KeyboardInterrupt    | a KeyboardInterrupt    | a done-callback                   |
      | A GeneratorExit        | a GeneratorExit        | a done-callback                   |
      | A CancelledError       | a CancelledError       | the done-callback of a cancelled run |
      | A SystemExit           | a SystemExit           | the done-callback of a cancelled run |
      | No Exception           | no Exception           | on_next                           |
      | A CancelledError       | a CancelledError       | on_next                           |
      | A SystemExit           | a SystemExit           | on_next                           |
      | A KeyboardInterrupt    | a KeyboardInterrupt    | on_next                           |
      | A GeneratorExit        | a GeneratorExit        | on_next                           |
      | No Exception           | no Exception           | on_error                          |
      | A CancelledError       | a CancelledError       | on_error                          |
      | A SystemExit           | a SystemExit           | on_error                          |
      | No Exception           | no Exception           | on_completed                      |
      | A CancelledError       | a CancelledError       | on_completed                      |
      | A SystemExit           | a SystemExit           | on_completed                      |
      | No Exception           | no Exception           | a thread_id function              |
      | A CancelledError       | a CancelledError       | a thread_id function              |
      | A KeyboardInterrupt    | a KeyboardInterrupt    | a thread_id function              |
      | No Exception           | no Exception           | a retry predicate                 |
      | A CancelledError       | a CancelledError       | a retry predicate                 |
      | A SystemExit           | a SystemExit           | a retry predicate                 |
      | No Exception           | no Exception           | the loop's own task factory       |
      | A SystemExit           | a SystemExit           | the loop's own task factory       |
      | A ValueError           | a ValueError           | a stream without an on_error handler |
      | A SystemExit           | a SystemExit           | a stream without an on_error handler |
      | No Exception           | no Exception           | the name of a graph               |
      | A SystemExit           | a SystemExit           | the name of a graph               |

  Scenario Outline: <Exception> from a mapper behind invoke ends its stream, and nothing waits forever
    Given an open bridge on its own loop
    When the mapper behind invoke raises <exception>
    Then run() of that stream raises <exception>

    Examples:
      | Exception           | exception           |
      | No Exception        | no Exception        |
      | A CancelledError    | a CancelledError    |
      | A SystemExit        | a SystemExit        |
      | A KeyboardInterrupt | a KeyboardInterrupt |
      | A GeneratorExit     | a GeneratorExit     |
      | A ValueError        | a ValueError        |

  Scenario Outline: <Exception> from a thread_id function ends its stream with that error
    Given an open bridge on its own loop
    When a thread_id function raises <exception>
    Then run() of that stream raises <exception>

    Examples:
      | Exception           | exception           |
      | No Exception        | no Exception        |
      | A CancelledError    | a CancelledError    |
      | A SystemExit        | a SystemExit        |

  Scenario Outline: A message for which the function <argument> raises fails alone, with errors="emit"
    Given an open bridge on its own loop
    When the function passed as <argument> raises a ValueError for the third of five messages, with errors="emit" and ordered=<ordered>
    Then all five have a result, in their order if ordered: the third has the status error and that ValueError
    And of the bridge's runs 4 have succeeded, and 1 has failed

    Examples:
      | argument  | ordered |
      | thread_id | True    |
      | config    | True    |
      | context   | True    |
      | timeout   | True    |
      | thread_id | False   |

  Scenario Outline: A message whose <argument> cannot be used is left out, with errors="skip"
    Given an open bridge on its own loop
    When the function passed as <argument> returns <nonsense> for the third of five messages, with errors="skip"
    Then the other four have a result, and the stream completes

    Examples:
      | argument  | nonsense       |
      | thread_id | a number       |
      | config    | another thread |
      | timeout   | a number       |

  Scenario Outline: Whatever <exception> one callback raises, the others are called, and it is logged
    Given an open bridge on its own loop
    When the first of three done-callbacks raises <exception>
    Then the other two are called, and the log has <exception>

    Examples:
      | exception           |
      | no Exception        |
      | a CancelledError    |
      | a SystemExit        |

  Scenario: A KeyboardInterrupt in a callback of the main thread propagates once all are called
    Given an open bridge on its own loop
    When the main thread cancels a run whose first callback raises a KeyboardInterrupt
    Then the KeyboardInterrupt comes out of cancel(), the other callbacks were called, and the run ends

  Scenario Outline: A KeyboardInterrupt on an adopted loop of the main thread ends that loop, as asyncio has it: <place>
    When on a loop of the main thread that a bridge adopts, <place> raises a KeyboardInterrupt
    Then asyncio.run raises KeyboardInterrupt, and the run is resolved and its other callback called

    Examples:
      | place                                     |
      | the callback of a run that answers        |
      | the callback of a run that cancels itself |
      | the loop's own task factory               |
      | the hook of a start                       |
      | the hook of an end                        |

  Scenario: Cleanup asks all runs to cancel, also if a callback of one raises a KeyboardInterrupt
    Given an open bridge on its own loop
    When the main thread cleans up 3 runs, each with a callback that raises a KeyboardInterrupt
    Then the KeyboardInterrupt comes out of the cleanup, and all 3 are cancelled

  Scenario: A future that raises when it is watched does not stay in the registry
    When a future whose add_done_callback raises is added to a registry
    Then the registry raises what the future raised, and is empty

  # -- nodes

  Scenario Outline: <exception> from <node> ends its run with the status error, and no other
    Given an open bridge on its own loop
    When 50 messages go to invoke of <node>, of which every seventh raises <exception>
    Then 42 results are ok, 8 have the status error and the <exception> itself, and the stream completes

    Examples:
      | exception         | node                         |
      | SystemExit        | an async function            |
      | SystemExit        | a sync function              |
      | SystemExit        | a graph with an async node   |
      | SystemExit        | a graph with a sync node     |
      | KeyboardInterrupt | an async function            |
      | KeyboardInterrupt | a graph with an async node   |
      | KeyboardInterrupt | a graph with a sync node     |

  Scenario: A SystemExit while the loop is being stopped does not keep it running
    Given an open bridge on its own loop
    When a node raises SystemExit in the step in which the bridge is closed
    Then the loop's thread ends

  Scenario: On an adopted loop a SystemExit ends the loop as asyncio has it, and every future resolves
    When 20 messages go to a graph on an adopted loop, and one node raises SystemExit
    Then asyncio.run raises SystemExit, and every future is resolved

  # -- streams that are cut off

  Scenario Outline: With errors="<errors>" a stream whose bridge is closed under it ends with an error
    Given an open bridge on its own loop
    When the bridge is closed over a stream with errors="<errors>" that has <done> of 50 results
    Then the stream has <results> results, ends with RunCancelledError, and does not complete

    Examples:
      | errors | done | results |
      | skip   | 9    | 9       |
      | emit   | 9    | 50      |
      | raise  | 9    | 9       |

  Scenario Outline: With errors="<errors>" a stream whose adopted loop ends does not complete
    Given an open bridge on an adopted loop
    When the adopted loop ends over a stream with errors="<errors>" that has 9 of 50 results
    Then the stream has <results> results, ends with an error, and does not complete

    Examples:
      | errors | results |
      | skip   | 9       |
      | emit   | 50      |

  Scenario: cleanup_tasks() does not cut a stream off: with errors="skip" it continues and completes
    Given an open bridge on its own loop
    When the runs of a stream with errors="skip" are cleaned up, and its source completes
    Then the stream has 9 results, and completes

  # -- children

  Scenario Outline: A child's <end> is not taken for its parent's own
    Given an open bridge on its own loop
    When a node waits for a run whose <end> it lets out
    Then the parent's status is error

    Examples:
      | end              |
      | time-out         |
      | cancellation     |
      | cancelled future |
