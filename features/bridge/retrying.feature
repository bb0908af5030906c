Feature: A retried attempt continues where the failed one stopped, and none begins after the end

  # -- what was saved

  @tdd_expected_fail
  Scenario: Retries around "ainvoke" put the message into the thread each time
    Given a graph of 3 steps whose 2nd fails 2 times, with a saver in memory
    When "hi" is sent on a thread by plain "ainvoke" with retries
    Then the thread has "hi" once, and only the failing step ran more than once

  Scenario Outline: With <saver> and durability "<durability>", the message is there once and finished steps ran once
    Given an open bridge on its own loop
    And a graph of 3 steps whose 2nd fails 2 times, with a saver <saver>
    When "hi" is sent on a thread with retry=2 and durability "<durability>"
    Then the run is ok
    And the thread has "hi" once, and only the failing step ran more than once

    Examples:
      | saver     | durability |
      | in memory | async      |
      | in memory | sync       |
      | in memory | exit       |
      | in SQLite | async      |
      | in SQLite | sync       |
      | in SQLite | exit       |

  Scenario Outline: A thread that has a history gets <what>
    Given an open bridge on its own loop
    And a graph of 3 steps whose 2nd fails 0 times, with a saver <saver>
    When "hello" is sent on a thread with retry=2 and durability "async"
    And the 2nd step is to fail 2 times, and "hi" is sent on the same thread
    Then the thread has "hello" once, and "hi" once after it

    Examples:
      | what              | saver     |
      | its next one once | in memory |
      | its next one once | in SQLite |

  Scenario Outline: A failed attempt of <graph> continues where it stopped, with a saver <saver>
    Given an open bridge on its own loop
    When "hi" is sent with retry=2 to <graph>, which fails 2 times, with a saver <saver>
    Then the run is ok
    And no step that had ended ran again: <once>

    Examples:
      | graph                                | saver     | once          |
      | a graph with a subgraph              | in memory | before, first |
      | a graph with a subgraph              | in SQLite | before, first |
      | a fan-out of which one branch fails  | in memory | before, left  |
      | a fan-out of which one branch fails  | in SQLite | before, left  |
      | an entrypoint with tasks             | in memory | before        |
      | a graph bound by with_config         | in memory | before        |
      | a RunnableBinding of a graph         | in memory | before        |
      | a sequence that begins with a graph  | in memory | before        |
      | a bound graph within a sequence      | in memory | before        |

  Scenario: An attempt that timed out is continued, too
    Given an open bridge on a virtual loop
    When "hi" is sent with retry=1 to a graph whose 2nd step waits at first, with a timeout
    Then the run is ok
    And no step that had ended ran again: before

  Scenario Outline: Where <what>, nothing of the message was saved, and it is sent again
    Given an open bridge on its own loop
    When "hi" is sent with retry=2 to a graph whose saver fails at <what>
    Then the run is ok
    And the thread has "hi" once

    Examples:
      | what                 |
      | reading the thread   |
      | saving the message   |

  Scenario Outline: Where <what> fails on a thread that has a history, the message is sent again
    Given an open bridge on its own loop
    When "hello" is sent on a thread, and then "hi" with retry=2, for which its saver fails at <what>
    Then the thread has "hello" once, and "hi" once after it

    Examples:
      | what                 |
      | reading the thread   |
      | saving the message   |

  Scenario: A graph without checkpoints is tried again on a thread, too
    Given an open bridge on its own loop
    When a graph without a saver, whose step fails once, gets a message on a thread with retry=2
    Then the run is ok

  Scenario: A run from an older checkpoint branches off once
    Given an open bridge on its own loop
    And a graph of 3 steps whose 2nd fails 0 times, with a saver in memory
    When "hello" is sent on a thread with retry=2 and durability "async"
    And the 2nd step is to fail 2 times, and "hi" is sent from the first checkpoint of that thread
    Then the run is ok
    And the newest branch of the thread has "hi" once

  Scenario: A result that the retry policy rejects makes the message be sent again
    Given an open bridge on its own loop
    And a graph of 3 steps whose 2nd fails 0 times, with a saver in memory
    When "hi" is sent on a thread with a policy that wants it twice
    Then the thread has "hi" 2 times

  # -- answers

  Scenario Outline: A resume value is used once, when the step fails <where> its interrupt
    Given an open bridge on its own loop
    And a graph of one step with 2 questions, with a saver <saver>, that waits at the first
    When the answer "yes" is sent as <answer> with retry=2, and the step fails once <where> its question
    Then the step waits at the second question, and has got "yes" for the first alone

    Examples:
      | where  | answer            | saver     |
      | before | Command(resume=)  | in memory |
      | after  | Command(resume=)  | in memory |
      | before | a map of answers  | in memory |
      | after  | a map of answers  | in memory |
      | after  | Command(resume=)  | in SQLite |
      | after  | a map of answers  | in SQLite |

  Scenario: Of two resume values at once, the consumed one is not sent again, and the other is not lost
    Given an open bridge on its own loop
    And a graph of two steps at once that ask, and wait
    When both are answered with retry=2, and one step fails once after its question
    Then both have got their answers, once each

  Scenario: An update that comes with a resume value is applied once
    Given an open bridge on its own loop
    And a graph of one step with 2 questions, with a saver in memory, that waits at the first
    When the answer "yes" is sent with an update with retry=2, and the step fails once after its question
    Then the step waits at the second question, and has got "yes" for the first alone
    And the update was made once

  # -- the end

  Scenario Outline: No attempt begins after <end>, whatever the policy: <policy>
    Given an open bridge on <home> loop
    When a run that makes an error of its cancelling is sent with retry=<policy>, and <end> comes
    Then it was tried once, and the registry is idle

    Examples:
      | end           | policy                                                   | home       |
      | cancel        | AsyncRetrying()                                          | its own    |
      | cancel        | AsyncRetrying(retry=retry_if_not_exception_type(KeyError)) | its own  |
      | cancel        | AsyncRetrying(retry=retry_always)                        | its own    |
      | cleanup_tasks | AsyncRetrying(retry=retry_if_not_exception_type(KeyError)) | its own  |
      | cleanup_tasks | AsyncRetrying(retry=retry_always)                        | an adopted |
      | close         | AsyncRetrying(retry=retry_if_not_exception_type(KeyError)) | its own  |
      | close         | AsyncRetrying(retry=retry_always)                        | an adopted |
      | the loop's end | AsyncRetrying(retry=retry_always)                       | an adopted |

  Scenario Outline: A <exception> is not tried again, whatever the policy: <policy>
    Given an open bridge on its own loop
    When a run that raises <exception> is sent with retry=<policy>
    Then it was tried once, and the future raises <exception>

    Examples:
      | exception         | policy                                                     |
      | CancelledError    | AsyncRetrying(retry=retry_if_not_exception_type(KeyError)) |
      | CancelledError    | AsyncRetrying(retry=retry_always)                          |
      | KeyboardInterrupt | AsyncRetrying(retry=retry_always)                          |
      | SystemExit        | AsyncRetrying(retry=retry_always)                          |

  Scenario: A run that fails while the bridge drains is not tried again
    Given an open bridge on an adopted loop
    When a run fails that was in flight when close began, with retry=5
    Then it was tried once, and the future raises ValueError

  Scenario: An attempt that was given up is not followed by another one
    Given an open bridge on its own loop
    When a run outlasts its timeout and the time to end, and then fails, with retry=5
    Then it was tried once, and the future raises RunTimeoutError
