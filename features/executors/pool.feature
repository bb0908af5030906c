Feature: What is common to executors, whatever starts their workers

  The workers of these scenarios are in this process: the scenarios of ray.feature have real ones.

  Scenario: Runs have the results that they have without an executor
    Given a bridge for the graph "plain" with 2 workers in this process
    When 100 messages with a number each go through the bridge
    Then each result is one more than its message
    And each worker had some of them

  Scenario: What is waiting goes out in one batch for each worker, and nothing waits when idle
    Given a bridge for the graph "plain" with 2 workers in this process
    When 64 messages are handed over in one step of the loop, and then one alone
    Then no worker had more than 3 batches, and the largest had 32 calls

  Scenario: A worker has no more calls than it may have
    Given a bridge for the graph "plain" with 2 workers in this process, for 3 calls each
    When 100 messages with a number each go through the bridge
    Then each result is one more than its message
    And no worker had more than 3 calls at once

  Scenario: A run that was not sent yet is cancelled at once
    Given a bridge for the graph "meeting" with 1 workers in this process, for 1 calls each
    When 2 messages are sent, the first begins, and the second is cancelled
    Then the second run has left the registry, while the first one still runs
    And the first one ends with its result

  Scenario: A cancelled run ends when its cleanup in the worker has ended
    Given a bridge for the graph "meeting" with 1 workers in this process
    When 2 messages are sent, both begin, and the second is cancelled
    Then the second run is still in the registry while it cleans up, and then it is not
    And the first one ends with its result

  Scenario: A message that interrupts its thread begins when the interrupted run has ended in its worker
    Given a bridge for the graph "meeting" with 2 workers in this process
    When a message begins on a thread, and another one interrupts it
    Then the other one waits until the first has cleaned up, and then has its result

  Scenario: A lost worker fails its runs alone, and is replaced
    Given a bridge for the graph "meeting" with 2 workers in this process
    When 4 messages are sent and begin, and one worker is lost
    Then 2 of them end with WorkerLostError, and the others with their results
    And 4 more messages are answered by 2 workers

  Scenario: A worker that is lost while it is idle is replaced before it gets a run
    Given a bridge for the graph "plain" with 2 workers in this process
    When 10 messages with a number each go through the bridge
    And a worker is lost while it is idle
    And 10 messages with a number each go through the bridge
    Then each result is one more than its message
    And there was a third worker

  Scenario: With retries, the runs of a lost worker are repeated by the others
    Given a bridge for the graph "meeting" with 2 workers in this process, and 1 retries
    When 4 messages are sent and begin, and one worker is lost
    Then all of them end with their results, after 2 have begun once more

  Scenario: A run that is lost more often than it may be repeated fails
    Given a bridge for the graph "meeting" with 1 workers in this process, and 1 retries
    When 1 messages are sent and begin, and one worker is lost
    And it begins once more, and the next worker is lost
    Then WorkerLostError is raised

  Scenario: A start that fails is tried again while other workers go on
    Given a bridge for the graph "plain" with 2 workers in this process, of which the first 1 starts fail
    When 100 messages with a number each go through the bridge
    Then each result is one more than its message

  Scenario: Calls are not kept back for long for a worker that does not start
    Given a bridge for the graph "meeting" with 2 workers in this process, of which the first 1 never starts
    When 4 messages are sent, and calls are kept back for less than it takes them to meet
    Then all 4 begin in the other worker, and end with their results

  Scenario: Where no worker starts, the runs that wait for one have the reason, and the next one tries again
    Given a bridge for the graph "plain" with 2 workers in this process, of which the first 2 starts fail
    When a message is sent
    Then OSError is raised, which says "no room for it"
    When 10 messages with a number each go through the bridge
    Then each result is one more than its message

  Scenario: A worker that is lost is replaced after a pause, if the next start fails
    Given a bridge for the graph "plain" with 2 workers in this process
    When 10 messages with a number each go through the bridge
    And a worker is lost while it is idle, and the next start fails, with a pause of 0.001 seconds
    And 10 messages with a number each go through the bridge
    Then each result is one more than its message
    And after the pause there is a third worker

  Scenario: A bridge is closed while its workers wait for another start
    Given a bridge for the graph "plain" with 2 workers in this process
    When 10 messages with a number each go through the bridge
    And a worker is lost while it is idle, and the next start fails, with a pause of 30 seconds
    And that bridge is closed
    Then no other start follows

  Scenario: A worker that leaves runs without an answer is lost
    Given a bridge for the graph "plain" with 1 workers in this process, which answer nothing
    When a message is sent
    Then WorkerLostError is raised, which says "left calls without an answer"

  Scenario Outline: A result that cannot be read here, as that raises <error>, fails its own run
    Given a bridge for the graph "unreadable" with 1 workers in this process
    When messages with the numbers 0 and <number> are sent
    Then the first has its result, and the other fails with RunError, which says "cannot be read here: not in this process"

    Examples:
      | number | error          |
      | 1      | ValueError     |
      | 2      | CancelledError |
      | 3      | SystemExit     |

  Scenario: A chunk that cannot be read here fails its run, which ends in its worker
    Given a bridge for the graph "talking_unreadably" with 1 workers in this process
    When a run whose chunk cannot be read here is streamed
    Then RunError is raised, which says "cannot be read here: not in this process"
    And nothing of it is left in the worker

  Scenario Outline: An error in a worker arrives as what it was: <error>
    Given a bridge for the graph "failing" with 1 workers in this process
    When a message with the number <number> is sent
    Then <error> is raised, which says "<words>"

    Examples:
      | number | error      | words                          |
      | 0      | KeyError   | no such key                    |
      | 1      | ValueError | the second one                 |
      | 2      | OwnError   | one and two, the second being two |
      | 3      | RunError   | LookupError (which cannot be pickled): ('not to be sent', |
      | 4      | ComparedError | not to be compared          |
      | 5      | ExceptionGroup | two of them (2 sub-exceptions) |
      | 6      | UnsendableError | kept                      |
      | 7      | RunError   | (its __str__ raised KeyboardInterrupt) |

  Scenario: A plain function that raises StopIteration fails its run, as without an executor
    Given a bridge for the graph "stopping" with 1 workers in this process
    When a message is sent
    Then RuntimeError is raised, which says "raised StopIteration"

  Scenario: Workers that cannot be ended are logged, and the bridge is closed
    Given a bridge for the graph "plain" with 1 workers in this process
    And its workers cannot be ended
    When 10 messages with a number each go through the bridge
    And that bridge is closed
    Then the log says that they could not be ended

  Scenario: A run is at most sixteen chunks ahead of its reader
    Given a bridge for the graph "talking" with 1 workers in this process
    When a run that has 200 chunks is streamed, and its reader waits after the first
    Then no more than 32 chunks have left the worker
    And the reader then has all 200 in order, and the result

  Scenario: Closing the bridge ends what its workers do
    Given a bridge for the graph "meeting" with 2 workers in this process
    When 4 messages are sent and begin, and the bridge is closed
    Then their futures are cancelled, and each has cleaned up

  Scenario: A bridge whose aclose is cancelled ends its workers all the same
    Given a bridge for the graph "meeting" with 2 workers in this process
    When 4 messages are sent and begin, and the bridge's aclose is cancelled
    Then their futures are cancelled, and each has cleaned up
    And its workers were told to end

  Scenario: A sync function keeps its slot until its thread has ended
    Given a host of a sync function that waits
    When a call of it is cancelled
    Then the call has not ended before the function returns

  Scenario: A call that is cancelled before it has arrived does not begin
    Given a host of a sync function that waits
    When a call of it is cancelled before it arrives
    Then the call is cancelled, and the function was not called

  Scenario: Of a batch that is cancelled before it has arrived, however large it is, no call begins
    Given a host of a sync function that waits, for 11000 calls
    When a batch of 11000 calls is cancelled before it arrives
    Then all 11000 calls are cancelled, and the function was not called

  Scenario: A call that is cancelled again and again while its graph saves has ended
    Given a host of a graph whose saver waits
    When a call of it is cancelled while it saves, again and again
    Then the call has ended as cancelled

  Scenario: A host that is closed cancels its calls
    Given a host of a graph that meets
    When it is closed during a call
    Then the call is cancelled, and nothing is left

  Scenario Outline: A worker that cannot load its graph says why: <what>
    Given a host of <what>
    Then it opens with <error>, which says "<words>"

    Examples:
      | what                            | error            | words               |
      | a number                        | InvalidTypeError | cannot run messages |
      | a factory that divides by zero  | ZeroDivisionError | division by zero   |
      | a factory that has nothing left | RuntimeError     | StopIteration       |

  Scenario Outline: A factory that is <kind> makes the graph of each worker
    Given a bridge for what a factory makes, <kind>, with 2 workers in this process
    When 10 messages with a number each go through the bridge
    Then each result is one more than its message

    Examples:
      | kind                       |
      | a function                 |
      | an async function          |
      | a context manager          |
      | an async context manager   |
      | the name of a function     |

  Scenario: What is not an executor is refused where the bridge is made
    When a bridge for other processes is made with an executor that is not one
    Then InvalidTypeError is raised, which says "executor must be a RayExecutor"

  Scenario Outline: Refused where a graph is passed: <what>
    Given a bridge for the graph "plain" with 2 workers in this process
    When the bridge is passed <what>
    Then InvalidArgumentError is raised, which says "<words>"

    Examples:
      | what                 | words                              |
      | another graph        | runs support.executors.graphs:plain, and not |
      | a function           | make a bridge of its own for it    |

  Scenario Outline: Refused where a graph is passed, of an executor with <factory>: <what>
    Given a bridge for what a factory makes, <factory>, with 2 workers in this process
    When that bridge is passed <what>
    Then InvalidArgumentError is raised, which says "<words>"

    Examples:
      | factory                | what                 | words                                       |
      | a function             | its factory          | is one that the factory has made            |
      | a function             | a name               | is one that the factory has made            |
      | the name of a function | its factory          | is a factory; pass the graph that it makes  |
      | the name of a function | a sequence of graphs | make one graph of it                        |

  Scenario: A graph with a memory of its own is refused where there are several workers
    Given a bridge for the graph "asking" with 2 workers in this process
    When the bridge is passed its graph
    Then InvalidArgumentError is raised, which says "use a checkpointer with a database, or workers=1"

  Scenario: A thread that two workers have runs of is one thread, if its saver is a database
    Given a bridge for a graph that counts in a file, with 2 workers in this process
    When a run holds one worker, after a message to a thread there, and another message follows
    Then the thread has counted both

  @tdd_expected_fail
  Scenario: With a saver in memory, which is not refused, each of two workers has a thread of its own
    Given a bridge for a graph that counts in the memory of each of 2 workers in this process
    When a run holds one worker, after a message to a thread there, and another message follows
    Then the thread has counted both

  Scenario: A question of a graph with its threads in the memory of its worker can be answered
    Given a bridge for the graph "asking" with 1 workers in this process
    When the graph asks on a thread, new input follows, and then the answer
    Then the input was rejected with PendingInterruptError, and the answer is the result

  Scenario: The page of a bridge with workers is given the graph by its name, as a call is
    Given a bridge for the graph "asking" with 1 workers in this process
    When the graph asks on a thread, and a page is made that is given it by its name
    Then the page shows the question

  Scenario: An answer to a question that is not pending is refused
    Given a bridge for the graph "asking" with 1 workers in this process
    When an answer is sent to a thread without a question
    Then StaleResumeError is raised

  Scenario: The graph of a command is loaded by its workers as by the command
    Given a bridge for the place of the graph "plain", with 2 workers in this process
    When 10 messages with a number each go through the bridge
    Then each result is one more than its message

  Scenario: A local executor changes nothing
    Given a bridge with a local executor
    Then its graphs are called as without one
