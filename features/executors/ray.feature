@once @ray
Feature: Graphs in worker processes, as actors of Ray

  Scenario: A program changes one argument, and its graph is called in other processes
    Given a bridge for the graph "plain" with 2 workers of Ray
    And both workers have started
    When 200 messages with a number each go through the bridge
    Then each result is one more than its message
    And they come from 2 processes, and none from this one

  Scenario: A graph may be named instead
    Given a bridge for the graph "plain" with 1 workers of Ray
    When the bridge is passed the name of its graph
    Then the result comes from another process

  Scenario: A sync function is called in a worker, with what it asks for
    Given a bridge for the graph "sync_function" with 1 workers of Ray
    When it is sent a message on a thread
    Then the function was called in another process, with the message

  Scenario: Context, config and context variables reach the nodes
    Given a bridge for the graph "reporting" with 1 workers of Ray
    When a message is sent with a context, a config, metadata and a context variable
    Then the node has seen all of them

  Scenario Outline: An error arrives as what it was: <error>
    Given a bridge for the graph "failing" with 1 workers of Ray
    When a message with the number <number> is sent
    Then <error> is raised, which says "<words>"
    And its traceback in the worker is the innermost cause

    Examples:
      | number | error      | words                    |
      | 0      | KeyError   | no such key              |
      | 1      | ValueError | the second one           |
      | 2      | OwnError   | one and two, the second being two |
      | 3      | RunError   | LookupError (which cannot be pickled): ('not to be sent', |

  Scenario Outline: What cannot be sent fails its own run, by name: <what>
    Given a bridge for the graph "<graph>" with 1 workers of Ray
    When a message is sent with <what>, and another one without
    Then InvalidTypeError is raised, which says "<words>"
    And the other one has its result

    Examples:
      | graph      | what                     | words                         |
      | plain      | a lock as content        | the message's content         |
      | plain      | a callback in its config | 'callbacks' of the config     |
      | plain      | a result with a lock     | the result of the graph       |

  Scenario: The runs of a thread keep their order over all workers
    Given a bridge for a graph with threads in a file, with 2 workers of Ray
    When 10 words on each of 4 threads go through the bridge
    Then each thread has its words in order, and has counted them

  Scenario: The graph of a worker is closed with the bridge
    Given a bridge with 1 workers of Ray, for a factory that notes when its graph is closed
    When 100 messages with a number each go through the bridge
    And the bridge is closed
    Then 1 graphs have been closed

  Scenario: One run of a batch is cancelled, and the others go on
    Given a bridge for the graph "meeting" with 1 workers of Ray
    When 4 messages are sent, all begin, and the second is cancelled
    Then the second run is still in the registry while it cleans up, and then it is not
    And the others end with their results

  Scenario: A run that takes too long is cancelled in its worker
    Given a bridge for the graph "meeting" with 1 workers of Ray
    When a message is sent with a timeout, which is over once its call has begun
    Then RunTimeoutError is raised
    And the run is still in the registry while it cleans up, and then it is not

  Scenario: Chunks arrive one by one
    Given a bridge for the graph "talking" with 1 workers of Ray
    When a run that has 200 chunks is streamed, and its reader waits after the first
    Then the reader then has all 200 in order, and the result

  Scenario: A stream that is left cancels its run
    Given a bridge for the graph "meeting" with 1 workers of Ray
    When a stream is left after its run has begun
    Then the run is still in the registry while it cleans up, and then it is not

  Scenario: A worker that is killed fails its runs alone, and the pool is whole again
    Given a bridge for the graph "meeting" with 2 workers of Ray
    And calls are kept back for a worker that starts late
    When 4 messages are sent and begin, and one worker is killed
    Then 2 of them end with WorkerLostError, and the others with their results
    And 4 more messages are answered by 2 workers

  Scenario: With retries, the runs of a worker that is killed are repeated
    Given a bridge for the graph "meeting" with 2 workers of Ray, and 1 retries
    And calls are kept back for a worker that starts late
    When 4 messages are sent and begin, and one worker is killed
    Then all of them end with their results, after 2 have begun once more

  @postgresql
  Scenario: A thread with checkpoints continues where the killed worker has left it
    Given a bridge for a graph with threads in PostgreSQL, with 2 workers of Ray, and 1 retries
    When a message has been counted, and its worker is killed in the next node
    Then it is answered, and was counted once

  Scenario Outline: Refused where an executor is made: <what>
    When a RayExecutor is made with <what>
    Then <error> is raised, which says "<words>"

    Examples:
      | what                      | error                | words                                |
      | a compiled graph          | InvalidTypeError     | does not survive pickling            |
      | a function of the content | InvalidTypeError     | a function without parameters        |
      | a factory with a graph    | InvalidTypeError     | would take the CompiledStateGraph    |
      | a factory with a builder  | InvalidTypeError     | would take the StateGraph along      |
      | a name without a module   | InvalidArgumentError | 'package.module:attribute'           |
      | a name in __main__        | InvalidArgumentError | cannot be imported by worker         |
      | no workers                | InvalidArgumentError | workers must be                      |
      | an address of Ray Client  | InvalidArgumentError | Ray Client, which does not carry     |
      | an address of no text     | InvalidTypeError     | address must be 'host:port'          |
      | fewer CPUs than none      | InvalidArgumentError | num_cpus must be a number from 0     |
      | CPUs without end          | InvalidArgumentError | num_cpus must be a number from 0     |
      | a dashboard in words      | InvalidTypeError     | dashboard must be True or False      |
      | loopback as a number      | InvalidTypeError     | loopback must be True or False       |
      | one variable as a text    | InvalidTypeError     | context_vars must be a list          |
      | an environment as a text  | InvalidTypeError     | runtime_env must be a mapping        |

  @tdd_expected_fail
  Scenario: A compiled graph that is pickled as it is, as Ray does, can be called elsewhere
    When Ray's pickle takes a compiled graph as it is
    Then it can be called as before

  Scenario: What a factory raises in a worker is the error of the runs
    Given a bridge with 1 workers of Ray, for a factory that fails
    When a message is sent
    Then ZeroDivisionError is raised

  Scenario: A factory that raises SystemExit in a worker fails the runs that wait for it
    Given a bridge with 1 workers of Ray, for a factory that leaves
    When a message is sent
    Then ExecutorUnavailableError is raised, which says "has raised SystemExit in a worker process: no configuration"

  Scenario: A running cluster is joined by its address, and left running
    When a process has a message answered by the cluster of this one
    Then it was answered by a worker
    And this process can still use its cluster

  Scenario Outline: The token of this machine is shown to a cluster at <an address>: <it is>
    When a cluster is joined at <an address>
    Then the token of this machine was shown to it: <it is>

    Examples:
      | an address | it is |
      | 127.0.0.1  | yes   |
      | 127.0.0.2  | yes   |
      | 192.0.2.1  | no    |

  Scenario: A cluster that does not answer is an error within seconds
    When a process sends a message to a cluster that is not there
    Then it has ExecutorUnavailableError within 45 seconds, which says "no Ray cluster answers at 127.0.0.1:"

  Scenario: A cluster of its own listens on this machine alone, and ends with a program that closes nothing
    When a process has a message answered by a cluster of its own
    Then while it ran, nothing listened on other interfaces
    And it handled SIGTERM itself, and nothing was printed
    And its cluster has ended with it, and its files are gone

  Scenario: A process that is killed takes its workers with it
    When a process that has workers is killed
    Then none of them is left after 45 seconds

  Scenario Outline: A node that raises <error> fails its own run, and its worker goes on
    Given a bridge for the graph "leaving" with 1 workers of Ray
    When a message with the number <number> is sent
    Then <error> is raised, which says "<words>"
    When a message with the number 2 is sent
    Then KeyError is raised, which says "an ordinary one"
    And nothing of <error> is among its causes

    Examples:
      | number | error             | words   |
      | 0      | SystemExit        | leaving |
      | 1      | KeyboardInterrupt | ctrl-c  |

  Scenario: A forked child leaves Ray to its parent, and ends by itself
    When a process with workers forks, and the child uses its bridge, then a new one
    Then both raise WrongProcessError in the child at once
    And the child ends with the status it chose, and nothing is printed
    And the workers of the parent go on

  Scenario: A bridge that a forked child uses first has its workers there, and ends them
    When a process forks, and the child uses a bridge that was not used before
    Then the child has its result, and no connection to Ray after it has closed the bridge

  Scenario: Ray that other code shuts down is connected anew, and nothing of it is left
    When a process shuts Ray down while a run is in flight, and then sends another message
    Then the run in flight fails with WorkerLostError, and the other one has its result
    And there is no connection to Ray when the bridge is closed

  Scenario: The programs of a cluster outlive it, and use the next one at its address
    Given a cluster on this machine
    When two programs have a run in flight in it, and the cluster is killed
    Then their runs fail with WorkerLostError
    And the next ones with ExecutorUnavailableError, until a cluster is started there again
    And both programs still run when Ray would have ended them

  Scenario: The runs of a node that is killed are repeated on another one
    Given a cluster on this machine, with a second node
    When a program has runs in flight on both nodes, and the second one is killed
    Then all of its runs have results, from the first node
