Feature: invoke keeps the Rx contract, whatever thread a result comes from

  # -- serialised, one end, nothing after it

  Scenario: Without a SerializedObserver, two threads are inside one subscriber at once
    Then 2 threads meet inside one plain on_next

  Scenario: Through the SerializedObserver 8 threads are never inside one subscriber together, and nothing is lost
    When 8 threads put 1000 items each through one SerializedObserver
    Then the subscriber was never entered twice, got 8000 items, each thread's in order, and one end

  Scenario: A thread that finds the SerializedObserver emitting does not wait for it
    When a second and a third thread put an item while the first is inside the subscriber
    Then they return while the first is still inside, and the first delivers all three
    And it was busy while the first was inside, and not before or afterwards

  Scenario: After an end, or after a stop, the SerializedObserver passes nothing on
    Then a SerializedObserver passes on no item and no second end after completed, error or stop

  Scenario: Notifications queued when the SerializedObserver is stopped are dropped
    When a SerializedObserver is stopped by the first of three items that are lined up
    Then the subscriber has got the first alone, and the others are freed

  Scenario: If on_next raises a BaseException, and on_error raises too, the first propagates and the second is logged
    When a SerializedObserver's on_next raises a GeneratorExit, and its on_error a LookupError
    Then the GeneratorExit comes out of the SerializedObserver, and "on_error of Observer" is logged

  Scenario: Results that complete on several threads at once reach the subscriber one at a time
    Given an open bridge on its own loop
    When 8 threads cancel 200 runs of one stream while others complete
    Then the subscriber was never entered twice, and got 200 results and one end

  Scenario Outline: A source of <kind> gives <notifications>
    Given an open bridge on its own loop
    When <source> goes through invoke of an async function
    Then the subscriber gets <notifications>

    Examples:
      | kind            | source                                   | notifications         |
      | nothing         | reactivex.empty()                        | completed             |
      | an error        | reactivex.throw(ValueError('source'))    | error source          |
      | three messages  | reactivex.of(1, 2, 3)                    | 1, 2, 3, completed    |

  Scenario: The end comes after the last result, however early the source completed
    Given an open bridge on its own loop
    When reactivex.of(1, 2, 3) goes through invoke of a waiting graph
    And the source has completed and all have begun
    Then the subscriber has got nothing
    When the gate opens
    Then the subscriber gets 1, 2, 3, completed

  # -- errors

  Scenario: errors="raise" ends the stream with the graph's own error, and the siblings end
    Given an open bridge on its own loop
    When 9 runs wait and a tenth fails, through invoke with errors="raise"
    Then the subscriber gets error no answer to 9
    And the registry becomes idle, and all that began have ended

  Scenario: errors="emit" keeps the stream alive, and emits what failed
    Given an open bridge on its own loop
    When messages of which every third fails go through invoke with errors="emit"
    Then the subscriber gets 9 results, 3 of them with the status error, and one end

  Scenario: errors="skip" keeps the stream alive, and logs what failed with its traceback
    Given an open bridge on its own loop
    When messages of which every third fails go through invoke with errors="skip"
    Then the subscriber gets 6 results, 0 of them with the status error, and one end
    And 3 messages were logged as skipped, each with its id and its error

  Scenario: A source that fails cancels what is in flight, and its error arrives once
    Given an open bridge on its own loop
    When a source sends 5 messages to a waiting graph, then fails
    Then the subscriber gets error source
    And the registry becomes idle, and all that began have ended

  Scenario: A thread_id function that raises ends the stream with its error
    Given an open bridge on its own loop
    When a message goes through invoke with a thread_id function that raises
    Then the subscriber gets error no thread
    And the source was told nothing

  Scenario: Closing the bridge ends a stream that raises with RunCancelledError
    Given an open bridge on its own loop
    When a source that never completes sends 5 messages to a waiting graph
    And the bridge is closed without draining
    Then the subscriber gets one error, a RunCancelledError

  # -- order and bounds

  Scenario: ordered=True emits in order of the input, though the runs end in reverse
    Given an open bridge on its own loop
    When 10 runs that end in reverse go through invoke with ordered=True
    Then the subscriber gets 0 to 9 in order, and one end

  Scenario: ordered=True looks ahead at most twice max_concurrency
    Given an open bridge on its own loop
    When 50 messages of which the first waits go through invoke, ordered, max_concurrency 3
    Then no more than 6 messages are handed over until the first has ended, then all are

  Scenario Outline: Closing the bridge ends an ordered <operator> whose messages wait for look-ahead, errors="<errors>"
    Given an open bridge on its own loop
    When 50 messages of which the first waits go through <operator>, ordered, max_concurrency 3, errors="<errors>"
    And admission is closed, and then the first ends
    Then the subscriber gets the results of 0 to 5, and then a BridgeClosedError

    Examples:
      | operator | errors |
      | invoke   | raise  |
      | invoke   | emit   |
      | invoke   | skip   |
      | stream   | emit   |

  Scenario: max_concurrency of a stream bounds it, though the bridge has more slots
    Given an open bridge on its own loop
    When 20 messages go through invoke of a waiting graph with max_concurrency=2
    Then no more than 2 of them are on at once

  Scenario: Ten thousand messages through one stream all arrive, in order if ordered
    Given an open bridge on its own loop
    When 10000 messages go through invoke with ordered=True
    Then the subscriber gets 0 to 9999 in order, and one end

  Scenario: A source that emits from 8 threads at once, against the grammar, is answered in full
    Given an open bridge on its own loop
    When 8 threads emit 250 messages each into one stream
    Then the subscriber was never entered twice, and got 2000 results and one end

  Scenario: max_pending blocks the source, and disposing releases it
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2
    When a source in a thread of its own sends 10 messages to a waiting graph
    Then the source is held back with 3 messages in flight
    When the subscription is disposed
    Then the source's thread is free, and the registry becomes idle

  # -- disposing

  Scenario: What interrupts the hand-over of a message ends the stream, rather than the end of its run
    Given an open bridge on its own loop
    When Ctrl-C interrupts the hand-over of a message
    Then it comes out of on_next, the stream ends with it, and the registry becomes idle

  Scenario: A message that is on its way when the subscription is disposed is not run
    Given an open bridge on its own loop
    When the thread_id function of the 2nd message disposes of the subscription
    Then the graph was run on the 1st alone, and the registry becomes idle

  Scenario: Disposing cancels the runs, they end, and nothing is emitted any more
    Given an open bridge on its own loop
    When a source that never completes sends 5 messages to a waiting graph
    And all have begun, and the subscription is disposed
    Then the registry becomes idle, and all that began have ended
    And the subscriber has got nothing
    And the source has no subscriber any more

  Scenario: Disposing inside on_next emits nothing after it, and cancels the rest
    Given an open bridge on its own loop
    When a subscriber disposes at the 3rd of 50 messages
    Then it got 3, and the registry becomes idle

  Scenario: Disposing while the source emits in another thread leaves no run behind, 200 times over
    Given an open bridge on its own loop
    When a thread disposes while another emits, 200 times over
    Then the registry becomes idle, and nothing came after any disposing

  # -- a subscriber that raises

  Scenario Outline: An on_next that raises behind <operator> is logged, not raised into the loop
    Given an open bridge on its own loop
    When a subscriber raises at its 2nd of 5 results, behind <operator>
    Then "<message>" was logged with that error
    And the registry becomes idle
    And the bridge answers the next message

    Examples:
      | operator        | message                                                                                                                   |
      | RxPY's flat_map | exception calling callback                                                                                                |
      | invoke          | raised: its subscription has ended, and its runs are cancelled; catch exceptions in the observer, and give it an on_error |

  Scenario: A failed run without an on_error is logged with the remedy
    Given an open bridge on its own loop
    When a message fails behind invoke, and the subscriber has no on_error
    Then "give it an on_error" was logged with that error

  # -- operators and schedulers around it

  Scenario Outline: It works with <what> around it
    Given an open bridge on its own loop
    Then <what> around invoke gives what it should

    Examples:
      | what                               |
      | observe_on(ThreadPoolScheduler)    |
      | observe_on(EventLoopScheduler)     |
      | subscribe_on(ThreadPoolScheduler)  |
      | retry                              |
      | take                               |
      | group_by and flat_map              |
      | share                              |
      | to_future                          |
      | concat                             |
      | switch_latest                      |
      | merge                              |
      | timeout                            |
      | run                                |
      | a second subscription              |
      | a second invoke                    |
      | an invoke inside flat_map          |

  Scenario: A subscriber that blocks behind observe_on delays no other stream
    Given an open bridge on its own loop
    When a subscriber blocks behind observe_on
    Then another stream of the same bridge is answered meanwhile

  Scenario: A subscriber that sends the next message itself makes a loop that ends
    Given an open bridge on its own loop
    Then 500 messages, each sent by the subscriber to the one before, are answered

  # -- virtual time

  Scenario Outline: In virtual time, <source> through <pipeline> gives <result>
    Given an open bridge on its own loop
    When the hot source "<source>" goes through <pipeline>, in virtual time
    Then the results are "<result>" in the same time

    Examples:
      | source        | pipeline                 | result          |
      | -a-b--c---\|  | invoke                   | -a-b--c---\|    |
      | -a-b--c---#   | invoke                   | -a-b--c---#     |
      | -a-b--c---\|  | ordered invoke           | -a-b--c---\|    |
      | -a-b-c----\|  | delay(20) and invoke     | ---a-b-c----\|  |
      | -a-b---c---\| | debounce(30) and invoke  | ------b---c\|   |
      | -a-b--c-d-\|  | invoke and take(2)       | -a-(b,\|)       |

  Scenario: A virtual timeout around a run that waits ends the stream and the run
    Given an open bridge on its own loop
    When the hot source "-a--------" goes through invoke of a waiting graph and timeout(30), in virtual time
    Then the results are "---#" in the same time
    And the registry becomes idle, and all that began have ended

  Scenario Outline: A <entering> that emits in the middle of emitting loses nothing, and doubles nothing
    Given a serialized observer that its own thread may enter
    When a <entering> comes in at each place of emitting, and emits
    Then each time all was as it should be, at more than 10 places

    Examples:
      | entering       |
      | signal handler |
      | finalizer      |
