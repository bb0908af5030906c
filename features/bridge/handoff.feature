Feature: A message crosses from any thread to the loop: registered, once, with its context

  Scenario Outline: <The bridge> registers a run before its submitter continues
    Given <the bridge>
    When its submitter is held up within the hand-over until the run has started
    Then the run found itself in the registry

    Examples:
      | The bridge            | the bridge            |
      | A RxPyLangGraphBridge | a RxPyLangGraphBridge |

    @tdd_expected_fail
    Examples: naive: registered after it was started
      | The bridge     | the bridge     |
      | A naive bridge | a naive bridge |

  Scenario Outline: <The bridge> hands over all messages that arrived while the loop was busy in one call
    Given <the bridge> whose loop is busy
    When 4 threads hand over 25 messages each
    Then all of them are in the registry, before any has started
    When the loop is busy no more
    Then each message was answered once
    And run_coroutine_threadsafe was called once

    Examples:
      | The bridge            | the bridge            |
      | A RxPyLangGraphBridge | a RxPyLangGraphBridge |

    @tdd_expected_fail
    Examples: naive
      | The bridge     | the bridge     |
      | A naive bridge | a naive bridge |

  Scenario Outline: Each run sees the context variables of its submitter, batched by <the bridge>
    Given <the bridge> whose loop is busy
    When 4 threads hand over 25 messages each
    And the loop is busy no more
    Then each run saw the context variables of its submitter

    Examples:
      | the bridge            |
      | a RxPyLangGraphBridge |

    @tdd_expected_fail
    Examples: a batch as one writes it
      | the bridge        |
      | a batching bridge |

  Scenario: Each run sees the context variables of its submitter, without batching
    Given a RxPyLangGraphBridge
    When 4 threads hand over 25 messages each
    Then each message was answered once
    And each run saw the context variables of its submitter

  Scenario: What a run writes to a context variable stays in that run
    Given a RxPyLangGraphBridge
    When a run writes to a context variable
    Then neither its submitter nor the next run sees it

  Scenario: RxPY's own flat_map on a thread pool takes create_future_task as its mapper
    Given a RxPyLangGraphBridge
    When 50 messages go through flat_map on a ThreadPoolScheduler
    Then the stream has each answer once, and completes

  Scenario Outline: Cancelled while it waits for <what>, a function is never called
    Given <the bridge> whose loop is busy
    When a message is handed over that has to wait for <what>, and its future is cancelled
    And the loop is busy no more
    Then its future is cancelled, and its function was never called
    And the registry becomes idle

    Examples:
      | the bridge            | what           |
      | a RxPyLangGraphBridge | the loop       |
      | a RxPyLangGraphBridge | a slot         |
      | a RxPyLangGraphBridge | its own thread |

    @tdd_expected_fail
    Examples: a batch as one writes it
      | the bridge        | what     |
      | a batching bridge | the loop |

  Scenario Outline: A cancelled run stays in the registry of <the bridge> until its coroutine has ended
    Given <the bridge> with a run that takes its time to end when it is cancelled
    When its future is cancelled, and the coroutine is ending
    Then the future is cancelled, and the run is in the registry
    When the coroutine has ended
    Then the registry becomes idle

    Examples:
      | the bridge            |
      | a RxPyLangGraphBridge |

    @tdd_expected_fail
    Examples: naive
      | the bridge     |
      | a naive bridge |

  Scenario: A run may hand over another one on the loop's own thread, and await it
    Given a RxPyLangGraphBridge
    When a run hands over another one and awaits it
    Then it gets the other one's answer

  Scenario Outline: On the loop's own thread <what> is refused, and changes nothing
    Given a RxPyLangGraphBridge with max_pending=1
    When a run calls <what>
    Then it gets a BlockingCallError that names the remedy "<remedy>"
    And the bridge answers the next message

    Examples:
      | what                                  | remedy                     |
      | future.result()                       | await future               |
      | future.result(1)                      | await future               |
      | future.exception()                    | await future               |
      | bridge.cleanup_tasks()                | cleanup_tasks_async()      |
      | bridge.close()                        | aclose()                   |
      | bridge.aclose()                       | close the bridge from      |
      | bridge.registry.wait_idle()           | wait_idle_async()          |
      | create_future_task, max_pending full  | max_pending=None           |

  Scenario Outline: On the loop's own thread <what> does not block, and is allowed
    Given a RxPyLangGraphBridge with max_pending=1
    When a run calls <what>
    Then it gets <outcome>

    Examples:
      | what                         | outcome          |
      | future.result(0)             | a TimeoutError   |
      | future.exception(0)          | a TimeoutError   |
      | result() of a done future    | the answer       |
      | bridge.cleanup_tasks(0)      | a report         |
      | bridge.registry.wait_idle(0) | False            |

  Scenario: Cancelling every task on the loop, the hand-over's own included, loses no message
    Given a RxPyLangGraphBridge
    When a message is handed over, and every task on the loop is cancelled before it gets there
    Then the message was answered
