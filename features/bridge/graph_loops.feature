Feature: Several loops, on which a bridge calls its graphs

  With a GIL they are refused. These scenarios replace the look at the interpreter, so that what they
  are about is tested on every Python.

  @as_it_is
  Scenario: Several loops are accepted on Python without the GIL, and refused with the reason on others
    When a bridge with 2 loops is made, on this Python as it is
    Then it has 2 loops without the GIL; otherwise InvalidArgumentError says "this Python has a GIL"

  Scenario Outline: Results are those of one loop: <graph>
    Given a bridge with 3 loops
    When 60 messages go through <graph>, with one loop and with these
    Then the results are the same, and 3 threads have called it

    Examples:
      | graph                           |
      | async and sync nodes            |
      | a subgraph                      |
      | nodes that are sent by Send     |
      | an async function               |
      | a Runnable                      |
      | a sequence of graphs            |

  Scenario: A sync function is called in a worker thread, as with one loop
    Given a bridge with 2 loops
    When a message is sent to a sync function
    Then it was called in a worker thread of the bridge

  Scenario Outline: Chunks are those of one loop: <modes>
    Given a bridge with 3 loops
    When a graph with a subgraph is streamed in the modes <modes>, with one loop and with these
    Then the chunks are the same, and so is the result

    Examples:
      | modes                     |
      | updates                   |
      | values                    |
      | custom                    |
      | messages                  |
      | updates, custom, messages |

  Scenario: The graphs of a sequence are streamed on the loops
    Given a bridge with 2 loops
    When a sequence of graphs is streamed, with one loop and with these
    Then the chunks are the same, and so is the result
    And the first step of a sequence may ask, on a thread

  Scenario: A question is answered on another loop
    Given a bridge with 2 loops
    When graphs ask on 20 threads, and each is answered
    Then each has its answer, and a second answer is refused with StaleResumeError

  Scenario: Each thread_id has its messages in order
    Given a bridge with 3 loops
    When 600 messages are sent to 20 threads in turn
    Then each thread has its messages in order, without a gap

  Scenario: An agent has its messages in their order
    Given a bridge with 2 loops
    And a runnable agent that answers with the request
    When 50 messages go through invoke of the agent
    Then each has its own answer, in order, and the agent was never run twice at once

  Scenario: Ten thousand messages
    Given a bridge with 2 loops
    When 10000 messages are sent from 4 threads
    Then each has its own result, and nothing is in flight

  Scenario: A cancelled run ends when its cleanup on its loop has ended
    Given a bridge with 2 loops
    When a run is cancelled, whose node cleans up for a while
    Then it is in the registry until the node has cleaned up, and then it is not

  @tdd_expected_fail
  Scenario: With asyncio's own functions a cancelled run ends before its cleanup on its loop has ended
    Given a bridge with 2 loops
    And its calls are made by run_coroutine_threadsafe
    When a run is cancelled, whose node cleans up for a while
    Then it is in the registry until the node has cleaned up, and then it is not

  Scenario: A message that interrupts its thread begins when the interrupted run has cleaned up on its loop
    Given a bridge with 2 loops
    When a message interrupts a run, whose node cleans up for a while
    Then it begins when the node has cleaned up

  Scenario: An attempt that takes too long ends on its loop before the next one begins
    Given a bridge with 2 loops
    When a run is retried, whose first attempt takes too long
    Then the first attempt had cleaned up when the second began

  Scenario Outline: What a node raises is raised as it is: <error>
    Given a bridge with 2 loops
    When a node on a loop of its own raises <error>
    Then the very same exception is the error of its run
    And a further message has its result

    Examples:
      | error              |
      | KeyError           |
      | ExceptionGroup     |
      | SystemExit         |
      | KeyboardInterrupt  |
      | an own exception   |

  Scenario: A function that cancels itself is cancelled, and nothing else
    Given a bridge with 2 loops
    When a function on a loop of its own raises CancelledError
    Then its run is cancelled
    And a further message has its result

  Scenario: A node that blocks its loop does not hold up runs on others
    Given a bridge with 2 loops
    When a node blocks its loop
    Then 50 further messages have their results one after the other
    And a report of a cleanup names the line at which it blocks

  Scenario Outline: Closing the bridge does not wait for a loop that is blocked, beyond its time-outs: <way>
    Given a bridge with 2 loops
    When a node blocks its loop
    And that bridge is closed within a tenth of a second, by <way>
    Then its report names the line at which it blocks, and it has not taken 10 seconds
    And the loop ends when the node no longer blocks it

    Examples:
      | way    |
      | close  |
      | aclose |

  Scenario: A loop that a node has stopped fails its runs alone, and is replaced
    Given a bridge with 2 loops
    When runs wait on both loops, and a node stops one of these
    Then its runs end with LoopUnavailableError, and the others with their results
    And 20 further messages have their results

  Scenario: A state that is opened on a bridge with several loops is on the bridge's own loop
    Given a bridge with 2 loops
    When a state is opened on it, and nodes stop the loops on which they are called
    Then sync nodes use the state, and an async node gets WrongThreadError

  Scenario: A call that comes just when its loop has ended goes to another one
    Given a bridge with 2 loops
    When a message is sent, and the loop that its call would go to ends before its run begins
    Then it has its result all the same

  Scenario: Closing the bridge ends what is on all loops
    Given a bridge with 3 loops
    When 30 runs have begun, and the bridge is closed
    Then their futures are cancelled, and each has cleaned up on its loop
    And what is sent then is refused with BridgeClosedError

  Scenario: A bridge that is dropped ends its loops
    Given a bridge with 2 loops
    When it has had 10 messages, and is dropped
    Then its loops end

  Scenario: An adopted loop that ends in the middle of runs ends these on their loops
    When a program ends its loop, adopted by a bridge with 2 loops, in the middle of runs
    Then each run has cleaned up on its loop

  Scenario: A run is at most a window of chunks ahead of its reader
    Given a bridge with 2 loops
    When a run of 400 supersteps is streamed, and its reader waits after the first chunk
    Then no more than 80 of them were made
    And the reader then has the chunks of all 400 in order, and the result

  Scenario: A stream that is left ends on its loop
    Given a bridge with 2 loops
    When a stream of a run that goes on forever is left after 3 chunks
    Then the run has left the registry, and its node has cleaned up

  Scenario: A run sees the context variables of its submitter, in sync nodes too
    Given a bridge with 2 loops
    When 20 messages are sent, each in a context of its own
    Then each run has seen that of its own message

  Scenario: The worker threads of all loops are bounded together
    Given a bridge with 3 loops, 4 runs and 5 threads at once
    When 20 messages go through a graph that fans out to 6 sync nodes
    Then no more than 5 threads were at work at once

  Scenario: A thread that a cancelled run has left on its loop counts for none
    Given a bridge with 2 loops
    When a node leaves a task behind, which calls a sync function once the run has ended
    Then that was called, and no run holds its slot for it

  Scenario: A node may wait for another run, on the same loops
    Given a bridge with 2 loops
    When 20 nodes await runs of the same bridge, and 20 sync nodes wait for their result
    Then each has the result of its own

  Scenario: Two bridges with several loops wait for each other's runs
    Given a bridge with 2 loops
    And another bridge with 2 loops
    When 20 nodes of the one await runs of the other, whose nodes await runs of the one
    Then each has the result of its own

  Scenario Outline: A wait that would block one of the loops is refused: <wait>
    Given a bridge with 2 loops
    When a node does this on its loop: <wait>
    Then it gets <error>, which says "<words>"

    Examples:
      | wait                    | error             | words                                 |
      | result()                | BlockingCallError | block an event loop on which graphs   |
      | result() of another     | BlockingCallError | block an event loop on which graphs   |
      | Observable.run()        | BlockingCallError | block an event loop on which graphs   |
      | close()                 | BlockingCallError | would block the event loop            |
      | cleanup_tasks()         | BlockingCallError | would block the event loop            |
      | aclose()                | BlockingCallError | would wait for the end of that        |
      | a message without room  | BlockingCallError | blocking here would stop the event    |

  Scenario: A node that waits for its own thread is told that this is a deadlock
    Given a bridge with 2 loops
    When a node sends a message to its own thread, and awaits the result
    Then it gets DeadlockError, which says "wait forever"

  Scenario: Hooks, limits and lanes apply to graphs on all loops
    Given a bridge with 2 loops, with limits, a usage and lanes
    When 20 messages go through a graph that calls a model
    Then hooks heard of each node, the usage has 20 calls, and never more than 2 were made at once

  Scenario: A snapshot names the nodes at work on all loops
    Given a bridge with 2 loops
    When 4 runs have begun
    Then a snapshot has the node of each

  Scenario: A graph that is asked to stop between supersteps does so on its loop
    Given a bridge with 2 loops
    When the bridge is closed with drain_after=0 while a run is between its nodes
    Then the run is interrupted, and another bridge continues it

  Scenario: A graph whose ainvoke has no parameter for it is not asked to stop
    Given a bridge with 2 loops
    When a message is sent to a graph on a thread, whose ainvoke takes no control
    Then it has its result, and the name of its class

  Scenario Outline: What belongs to one loop is refused where the graph is passed: <what>
    Given a bridge with 2 loops
    When it is passed a graph with <what>
    Then it gets InvalidArgumentError, which says "<words>"

    Examples:
      | what                               | words                                       |
      | an AsyncSqliteSaver                | the AsyncSqliteSaver of                     |
      | an AsyncSqliteSaver in a subgraph  | belongs to the event loop                   |
      | a store with a loop                | use an InMemorySaver or InMemoryStore       |
      | an AsyncSqliteSaver behind another | the AsyncSqliteSaver of                     |

  Scenario: Several loops and worker processes exclude each other
    When a bridge with 2 loops and an executor is made
    Then it gets InvalidArgumentError, which says "leave one of the two out"

  Scenario: A forked child has a bridge without its loops, and may make a new one
    When this program forks: several loops
    Then it ends by itself, and prints "WrongProcessError 2 unused 2"

  @counted_references
  Scenario: Runs are freed without the cyclic collector
    Given a bridge with 2 loops
    When 100 messages are answered, and 100 fail, without the cyclic collector
    Then none of their contents is kept
