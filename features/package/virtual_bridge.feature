Feature: In virtual time pipelines are tested without waiting, and always happen in the same order

  # -- marble tests: what the scheduler of RxPY records

  Scenario Outline: <How>, results come at the virtual times at which they are due
    Given a bridge in virtual time with <options>
    When messages that take "<seconds>" arrive at 210, 220 and so on, through <pipeline>
    Then the test scheduler has recorded <recorded>

    Examples:
      | How                      | options                              | seconds   | pipeline                              | recorded                            |
      | All at once              | name='x'                             | 30 5 15   | invoke(graph)                         | 5@225 30@240 15@245 end@300         |
      | In order                 | name='x'                             | 30 5 15   | invoke(graph, ordered=True)           | 30@240 5@240 15@245 end@300         |
      | One at a time            | max_concurrency=1                    | 30 5 15   | invoke(graph)                         | 30@240 5@245 15@260 end@300         |
      | On one thread            | name='x'                             | 30 5 15   | invoke(graph, thread_id='t')          | 30@240 5@245 15@260 end@300         |
      | Switched                 | name='x'                             | 30 5 15   | switch_map(graph)                     | 5@225 15@245 end@300                |
      | Only the first           | name='x'                             | 30 5 15   | exhaust_map(graph)                    | 30@240 end@300                      |
      | With a time limit        | name='x'                             | 30 5 3600 | invoke(graph, timeout=20)             | 5@225 timed_out@230 timed_out@250 end@300 |
      | With a deadline          | max_concurrency=1                    | 30 5 15   | invoke(graph, deadline=28)            | timed_out@238 5@243 timed_out@258 end@300 |
      | With a limit to begin    | max_concurrency=1                    | 30 5 15   | invoke(graph, timeout=limits(start=12)) | timed_out@232 30@240 15@255 end@300 |
      | Debounced                | name='x'                             | 30 5 15   | debounce(15), invoke(graph)           | 15@260 end@300                      |
      | Sampled                  | name='x'                             | 1 2 3 4 5 | sample(20), invoke(graph)             | 2@222 4@244 5@265 end@300           |
      | Delayed twice            | name='x'                             | 1 2       | delay(10), invoke(graph), delay(10)   | 1@231 2@242 end@320                 |
      | In two stages            | name='x'                             | 1 2       | invoke(graph), invoke(graph)          | 1@212 2@224 end@300                 |
      | Where there is no room   | max_concurrency=1, max_pending=1     | 30 30 30 30 | invoke(graph)                       | 30@240 30@270 30@300 30@330 end@330 |
      | The newest dropped       | max_concurrency=1, max_pending=1, overflow='drop_newest' | 30 5 15 7 | invoke(graph)     | rejected@230 rejected@240 30@240 5@245 end@300 |
      | In a worker thread       | name='x'                             | 30 5      | invoke(sync)                          | 30@210 5@220 end@300                |
      | In worker threads and coroutines | name='x'                     | 30 5      | invoke(sync), invoke(graph)           | 5@225 30@240 end@300                |
      | After disposal           | name='x'                             | 900 5     | invoke(graph)                         | 5@225                               |

  @tdd_expected_fail
  Scenario: A test scheduler and a bridge in real time have two clocks
    Given an open bridge on its own loop
    When messages that take "30 5 15" arrive at 210, 220 and so on, through invoke(graph)
    Then the test scheduler has recorded 5@225 30@240 15@245 end@300

  Scenario: Marbles of RxPY
    Given a bridge in virtual time with name='x'
    When "-3-1-|" of RxPY's marbles, 10 s each, go through the bridge from 0 on
    Then the subscriber has got "3@13 1@31 end@50"

  # -- everything that has a time

  Scenario Outline: <What> takes <seconds> s of virtual time, and no other
    Given a bridge in virtual time with name='x'
    When the code under test waits for <what>
    Then <seconds> virtual seconds have passed, and it has <outcome>

    Examples:
      | What                                | what                                | seconds | outcome         |
      | A run of a day                      | a run of a day                      | 86400   | a result        |
      | A timeout of an hour                | a timeout of an hour                | 3600    | RunTimeoutError |
      | A limit for all attempts            | a limit for all attempts            | 100     | RunTimeoutError |
      | The first chunk                     | the first chunk                     | 50      | RunTimeoutError |
      | A pause between chunks              | a pause between chunks              | 30      | RunTimeoutError |
      | A deadline behind a stuck run       | a deadline behind a stuck run       | 600     | RunTimeoutError |
      | Four retries, each after twice that | four retries, each after twice that | 150     | a result        |
      | LangGraph's own retries             | LangGraph's own retries             | 300     | a result        |
      | An answer of result() in a minute   | an answer of result() in a minute   | 60      | TimeoutError    |
      | An idle registry in a minute        | an idle registry in a minute        | 60      | False           |
      | An agent with a timeout             | an agent with a timeout             | 10      | RunTimeoutError |
      | An answer of an agent               | an answer of an agent               | 25      | a result        |
      | An item of an agent's output        | an item of an agent's output        | 20      | RunTimeoutError |
      | A child, in a worker thread         | a child, in a worker thread         | 86400   | a result        |
      | A stream, in a node                 | a stream, in a node                 | 100     | a result        |
      | A stream, by run                    | a stream, by run                    | 25      | a result        |
      | A coroutine with a timeout          | a coroutine with a timeout          | 77      | TimeoutError    |
      | Pulled messages                     | pulled messages                     | 50      | a result        |
      | Chunks of astream                   | chunks of astream                   | 10      | a result        |

  Scenario: Durations of results and ages of runs are virtual too
    Given a bridge in virtual time with name='x'
    When a run of 100 s is looked at after 40 s and at its end
    Then its age was 40 s, and its duration 100 s

  Scenario: Hooks receive virtual times, and no event of a blocked loop
    Given a bridge in virtual time with name='x'
    When hooks listen to runs of 30 s and of 100 s on one thread
    Then they are told that the second waited 30 s, and that its node and itself took 100 s
    And they are told of no blocked loop

  Scenario: A HistoricalScheduler has the bridge's runs at its dates
    Given a bridge in virtual time with the historical scheduler of 2001-01-01
    When the code under test waits for a run of a day
    Then 86400 virtual seconds have passed, and it has a result
    And its clock shows 2001-01-02

  # -- when time passes

  Scenario: Nothing happens until time is let pass, and then as much as that
    Given a bridge in virtual time with name='x'
    When runs of 1 to 5 s are sent, and time is advanced second by second
    Then one has ended after each second, and none before

  Scenario: Time stands still while a worker thread is active
    Given a bridge in virtual time with name='x'
    When a node is at work in a thread, while a node beside it sleeps for 10 s
    Then the time was the same at the end of the thread's work as at its beginning

  @tdd_expected_fail
  Scenario: A loop that jumps ahead when it is idle does not know of the worker thread
    When a plain function is at work in a thread of a loop that jumps ahead, while a task sleeps for 10 s
    Then the time was the same at the end of the thread's work as at its beginning

  @once
  Scenario: What happens at the same time happens in the same order every time
    When 20 bridges in virtual time do the same 200 random things each
    Then all 20 have done them in the same order, at the same times

  Scenario: Two bridges share one scheduler, and wait for each other
    Given a bridge in virtual time with name='x'
    When a run awaits one of another bridge on the same scheduler, which awaits one of the first
    Then 30 virtual seconds have passed, and it has a result

  @once
  Scenario: Ten thousand runs that take an hour each
    Given a bridge in virtual time with max_concurrency=100
    When 10000 messages that take an hour go through the bridge
    Then 360000 virtual seconds have passed, and it has 10000 results

  # -- what could not end says so

  Scenario Outline: <What> is an error, and not a test that hangs
    Given a bridge in virtual time with thread_timeout=0.05
    When the code under test waits for <what>
    Then <error> is raised, which says "<words>"

    Examples:
      | What                               | what                               | error             | words                |
      | What nothing will bring about      | what nothing will bring about      | DeadlockError     | nothing is left      |
      | A coroutine that nothing wakes     | a coroutine that nothing wakes     | DeadlockError     | nothing is left      |
      | A stream without an end            | a stream without an end            | DeadlockError     | nothing is left      |
      | A worker thread that is stuck      | a worker thread that is stuck      | DeadlockError     | stuck.wait(          |
      | A run, on a running loop           | a run, on a running loop           | BlockingCallError | bridge.run(...)      |
      | A stream, on a running loop        | a stream, on a running loop        | BlockingCallError | bridge.run(...)      |
      | A stream, by RxPY's run            | a stream, by RxPY's run            | BlockingCallError | bridge.run(source)   |
      | A coroutine, in a worker thread    | a coroutine, in a worker thread    | BlockingCallError | another thread       |
      | A coroutine, on a running loop     | a coroutine, on a running loop     | BlockingCallError | bridge.run(...)      |
      | A coroutine, once it is closed     | a coroutine, once it is closed     | BridgeClosedError | is closed            |
      | A scheduler that is none           | a scheduler that is none           | InvalidTypeError  | VirtualTimeScheduler |

  Scenario: Closing drains for 5 virtual seconds, cancels, and names what is stuck
    Given a bridge in virtual time with name='x'
    When it is closed with runs that take 3 s, 100 s, and one that swallows its cancellation
    Then the report says "1 cancelled, 1 completed, 0 failed, 1 stuck", 10 virtual seconds later

  Scenario: A bridge that is dropped unclosed leaves nothing behind
    Given a bridge in virtual time with name='x'
    When a run of it has ended, and both are dropped
    Then nothing of the bridge is left

  Scenario: Threads wait for runs that the test lets happen
    Given a bridge in virtual time with name='x'
    When 5 threads wait for a run of an hour, as does the test
    Then all of them have its result
