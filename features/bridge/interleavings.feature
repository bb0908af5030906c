@explored
Feature: No interleaving of threads breaks the registry, the hand-off or an agent

  The real code is run under a scheduler that decides, at each line and at each lock, which thread
  goes on: first by chance, then every way there is with so many preemptions. Beside each is a racy
  control, in which the same search has to find what is wrong.

  Scenario Outline: No interleaving breaks <what>
    When every interleaving of <what> is tried
    Then none breaks it, and none is left to try

    Examples: the registry and its futures
      | what                                    |
      | adding, ending and looking              |
      | a task that ends while it is discarded  |
      | adding and closing                      |
      | adding and cleaning up                  |
      | waiting for the end of the last task    |
      | resolving, cancelling and waiting       |
      | waiting beside an executor's future     |
      | taking futures as they are completed    |
      | room, and the loop's own thread         |
      | dropping a run that is about to start   |

    Examples: the hand-off
      | what                                    |
      | first submitting from two threads       |
      | submitting while the drain ends         |
      | submitting and cancelling               |
      | submitting and the stop of the loop     |
      | pulling and the stop of the loop        |
      | submitting and closing the bridge       |
      | submitting and cleaning up the bridge   |

    Examples: the end of a run
      | what                                    |
      | cancelling a run while it ends          |
      | the end of a run in two threads         |
      | counting a run that is cancelled at its end |
      | counting a run that is dropped at its end |
      | dropping a run that is refused          |
      | adding hooks as a run ends              |
      | adding hooks beside others as a run ends |
      | saving while a lease is given back      |
      | closing a reader that begins to wait    |

    Examples: agents
      | what                                    |
      | an agent's lock that is handed over     |
      | the end of an agent's run, in two threads |
      | a run of an agent that is ended by the next |
      | two runs of an agent that enqueue       |
      | a turn, a message and a look            |
      | two states that overlap                 |
      | putting, getting and the end of a run   |
      | putting late and the end of a run       |
      | entering a state late and the end of a run |

  Scenario Outline: The same search finds <what is wrong> in <the control>
    When every interleaving of <the control> is tried
    Then one is found that ends with "<what is wrong>"

    Examples: plain sets
      | the control                            | what is wrong               |
      | clearing a set out                     | a task was lost             |
      | leaving a set if one is in it          | counted 2 times             |
      | closing after a look at a set          | 1 admitted, closing saw 0   |
      | list(tasks), wait, subtract            | a task outlived the cleanup |
      | an event that says that a set is empty | deadlock                    |
      | a future without a lock                | ['settled', 'cancelled']    |
      | futures that share a condition         | deadlock                    |
      | looking for room, then entering        | the loop's own thread waits |
      | looking whether a run has started      | it is dropped, and starts   |

    @tolerates:answer
    Examples: hand-offs
      | the control                                | what is wrong                       |
      | a flag that says that a drain is due       | deadlock                            |
      | cancelling through a task if there is one  | it was cancelled, and runs on       |
      | run_coroutine_threadsafe and a stop        | deadlock                            |
      | cancelling what a set holds, then refusing | its future is never resolved        |

    Examples: the end of a run
      | the control                              | what is wrong                           |
      | a parent that is looked at, then told    | AttributeError                          |
      | a lease that is looked for, then checked | it was saved without a look at the lease |
      | a run that is counted, then resolved     | it is cancelled, and counted as ok      |
      | a reader that looks, then waits          | deadlock                                |

    Examples: agents
      | the control                           | what is wrong                  |
      | a lock that is freed, then taken      | it was free for a moment       |
      | a flag that says that it was told     | told 2 times                   |
      | a run that is compared, then ended    | the next run was ended         |
      | a guard that is looked at, then taken | 2 were in at once              |
      | a look at the end, then a put         | it is in the next run's output |
      | a turn that is written as it comes    | the turn was split             |
      | a state that is saved and put back    | no block is open, and it is    |
      | an end that is a flag                 | an item was lost               |
