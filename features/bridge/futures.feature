Feature: SharedLockFuture behaves like the standard library's future

  Each row is done with both, and what was seen is compared.

  Scenario Outline: Both futures do the same: <what>
    When <what> is done with a future of the standard library, and with a light one
    Then the same was seen

    Examples: reading
      | what                                       |
      | result() once it is there                  |
      | result() before it is there                |
      | result() of one that has failed            |
      | result() when the time is over             |
      | result() of a cancelled one                |
      | result() of one that is then cancelled     |
      | exception() once it is there               |
      | exception() of one with a result           |
      | exception() when the time is over          |
      | the states in turn                         |
      | three threads that wait for one            |

    Examples: cancelling
      | what                                       |
      | cancel() before the result                 |
      | cancel() after the result                  |
      | cancel() twice                             |
      | the result after cancel()                  |

    Examples: callbacks
      | what                                       |
      | the order of the callbacks                 |
      | a callback that is added too late          |
      | the callbacks of a cancelled one           |
      | the callbacks of one that has failed       |
      | a callback that raises                     |
      | a callback that adds a callback            |
      | the thread that the callbacks run in       |

    Examples: in company
      | what                                       |
      | wait() for the first                       |
      | wait() for the first exception             |
      | wait() for all                             |
      | wait() when the time is over               |
      | wait() for a cancelled one                 |
      | wait() by a handler within wait()          |
      | as_completed()                             |
      | as_completed() when the time is over       |
      | asyncio.wrap_future()                      |
      | cancelling what asyncio.wrap_future() made |

  Scenario Outline: The future of a run is not to be resolved by others: <method>
    Given an open bridge on its own loop
    When a message goes to a waiting graph
    Then <method> of its future raises a UsageError, and it is answered all the same

    Examples:
      | method                        |
      | set_result                    |
      | set_exception                 |
      | set_running_or_notify_cancel  |

  Scenario: Runs of two bridges and futures of an executor are waited for together, from any thread
    When 6 threads wait 400 times each for runs of two bridges and an executor
    Then the registry becomes idle

  Scenario Outline: What asyncio reads from a future on Python 3.14 agrees with its methods: <state>
    When a light future is <state>
    Then asyncio reads that it is done <done>, cancelled <cancelled>, with <outcome>

    Examples:
      | state     | done  | cancelled | outcome      |
      | pending   | False | False     | nothing      |
      | resolved  | True  | False     | its result   |
      | failed    | True  | False     | its error    |
      | cancelled | True  | True      | nothing      |
