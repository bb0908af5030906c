Feature: Hooks, limits, usage and lanes of a bridge apply to graphs in worker processes

  The workers of most scenarios are in this process, as in pool.feature.

  # -- usage -------------------------------------------------------------------------------------

  Scenario Outline: Tokens and costs are counted as without an executor: <how>
    Given a bridge that counts usage, for the graph "<graph>" of models with 2 workers in this process
    When 3 messages on 2 threads, and one with another model, are <sent>
    Then the usage is in total, by model, thread and message that of a bridge without an executor

    Examples:
      | how              | graph              | sent                   |
      | an async node    | asking             | sent                   |
      | a sync node      | asking_in_a_thread | sent                   |
      | a plain function | asking_plainly     | sent                   |
      | a stream         | asking             | streamed               |

  Scenario: What a worker has counted before it was lost is counted, and what its run counts again is too
    Given a bridge that counts usage, for the graph "asking_twice" of models with 1 workers in this process, and 1 retries
    When a message has had its first answer, and its worker is lost in the second call
    Then it is repeated, and the usage has its 3 answers

  @tdd_expected_fail
  Scenario: Counted in the worker alone, tokens are not known in the driver
    Given a bridge that counts usage, for the graph "asking" of models with 2 workers in this process
    And the calls of its graph are not accompanied
    When 3 messages on 2 threads, and one with another model, are sent
    Then the usage is in total, by model, thread and message that of a bridge without an executor

  @once @ray
  Scenario: Tokens are counted, and calls limited, over workers of Ray
    Given a bridge that counts usage and allows 2 calls at once, for the graph "asking" of models with 2 workers of Ray
    When 4 messages call the model
    Then 2 calls are made, and the others wait until one is answered
    And all have their results, and the usage has 4 calls

  # -- hooks -------------------------------------------------------------------------------------

  Scenario Outline: Nodes are told to hooks as without an executor, in order, before the end of the run: <what>
    Given a bridge with hooks for nodes, for the graph "nested" of models with 2 workers <where>
    When a message with the number <number> goes through it
    Then the hooks were told the same as those of a bridge without an executor, with <count> nodes

    Examples:
      | what             | number | count | where           |
      | all succeed      | 5      | 3     | in this process |
      | a subgraph fails | 0      | 3     | in this process |

    @once @ray
    Examples:
      | what             | number | count | where           |
      | all succeed      | 5      | 3     | of Ray          |

  Scenario: A snapshot shows the node of a run in a worker, if a hook listens to nodes, and its timeout names it
    Given a bridge with hooks for nodes, for the graph "asking" of models with 1 workers in this process
    When a message is in its node
    Then the snapshot shows the node "ask"
    And when its time is over, its error names the node "ask"

  @counted_references
  Scenario: Of a message that cannot be pickled, its companions keep nothing
    Given a bridge with a worker in this process, and hooks for nodes that keep nothing
    When a message that cannot be pickled is refused, without the cyclic collector
    Then its run is freed

  Scenario: The nodes of a worker that is lost are not at work any more
    Given a bridge with hooks for nodes, for the graph "asking" of models with 1 workers in this process, and 1 retries
    When a message is in its node, and its worker is lost
    Then the snapshot shows the node "ask" once the message is in it again
    And the hooks were told of one node, which has succeeded

  Scenario: Runs that nothing listens to are not accompanied
    Given a bridge for the graph "plain" with 2 workers in this process
    When a message is sent
    Then nothing has accompanied it

  Scenario: A config to which no callbacks can be added fails its run, as without an executor
    Given a bridge that counts usage, for the graph "asking" of models with 1 workers in this process
    When a message whose callbacks are no list is sent, and a hook listens to nodes
    Then TypeError is raised, which says "must be an iterable"

  # -- limits ------------------------------------------------------------------------------------

  Scenario Outline: Calls of models are limited over all workers, in one queue: <graph>
    Given a bridge that counts usage and allows 2 calls at once, for the graph "<graph>" of models with 2 workers in this process
    When 4 messages call the model
    Then 2 calls are made, and the others wait until one is answered
    And all have their results, and the usage has 4 calls

    Examples:
      | graph              |
      | asking             |
      | asking_in_a_thread |
      | asking_plainly     |

  @tdd_expected_fail
  Scenario: With limits of its own, each worker has the whole limit
    Given a bridge that counts usage and allows 2 calls at once, for the graph "asking" of models with 2 workers in this process
    And each worker has limits of its own
    When 4 messages call the model
    Then 2 calls are made, and the others wait until one is answered

  Scenario Outline: A run that is cancelled while its call waits leaves the queue: <graph>
    Given a bridge that counts usage and allows 1 calls at once, for the graph "<graph>" of models with 2 workers in this process
    When 3 messages call the model, and one that waits is cancelled
    Then it ends without having called the model, and the other one that waits is next

    Examples:
      | graph              |
      | asking             |
      | asking_in_a_thread |

  Scenario: The calls of a worker that is lost give their places back
    Given a bridge that counts usage and allows 2 calls at once, for the graph "asking" of models with 1 workers in this process
    When 4 messages call the model, and their worker is lost
    Then the limits have no call in flight, and none that waits

  Scenario: A call that the provider refuses slows down the others, and is retried as in this process
    Given a bridge that counts usage and allows 4 calls at once, for the graph "asking" of models with 2 workers in this process
    When a message calls the model, which is refused, and is retried by the limits
    Then it has its result, and the limits have 1 refusal, and 2 calls at once

  Scenario: The functions of limits are called in this process, and what they raise is the error of the run
    Given a bridge whose limits have a key that fails for the number 1, for the graph "asking" of models with 2 workers in this process
    When messages with the numbers 0 and 1 call the model
    Then the first one has its result, and the other one has the KeyError of the key

  Scenario Outline: What the functions of limits do wrong is the error of the run: <what>
    Given a bridge whose limits have <what>, for the graph "<graph>" of models with 1 workers in this process
    When a message calls the model in vain
    Then <error> is raised, which says "<words>"

    Examples:
      | what                               | graph              | error                | words                         |
      | a key that raises a CancelledError | asking             | NodeCancelledError   | raised asyncio.CancelledError |
      | a key that raises an OSError       | asking_on_the_loop | RunError             | no key                        |
      | a time that raises an error        | asking             | OSError              | no clock                      |
      | a time that returns nothing        | asking             | InvalidArgumentError | what time returns must be a number of seconds |

  Scenario: An error of the limits is pickled as all that goes to workers
    Given a bridge whose limits have a key that raises an error of its program, for the graph "asking" of models with 1 workers in this process
    And its executor can pickle that error
    When a message calls the model in vain
    Then ProgramError is raised, which says "no key for it"

  Scenario: A call that a node leaves behind does not wait for an answer that never comes
    Given a bridge that counts usage and allows 1 calls at once, for a graph that leaves a call behind, with a worker in this process
    When a message is sent, and the call is made after its end
    Then the call is cancelled

  Scenario: A call that waits in a thread is made no more when another node has failed
    Given a host of a graph of two sync nodes, of which one calls a model
    When that call waits for the limits, and the other node fails
    Then the call of the graph has ended with an error, and the model was not called

  Scenario: A clock of limits that raises fails the call that would go, and the next one goes
    Given a bridge whose limits have a clock that fails once, for the graph "asking" of models with 1 workers in this process
    When messages with the numbers 0 and 1 call the model, the second one behind the first
    Then the first one has the KeyError of the clock, and the other one its result

  Scenario: A call of which not all parameters can be pickled is described by the others
    Given a bridge whose limits have a key that notes the parameters, for the graph "asking_with_a_tool" of models with 1 workers in this process
    When a message calls the model
    Then the key was given the parameter "temperature", and not the parameter "tool"

  Scenario: A call whose messages cannot be pickled fails with the reason
    Given a bridge that counts usage and allows 1 calls at once, for the graph "asking_with_a_lock" of models with 1 workers in this process
    When a message calls the model in vain
    Then InvalidTypeError is raised, which says "the messages to a model cannot be sent to its limits"

  Scenario: A call whose parameter takes long to pickle holds up no other call
    Given a bridge with limits, for a graph of two calls, of which one is pickled after the answer of the other
    When a message is sent to it
    Then both calls are made

  # -- lanes -------------------------------------------------------------------------------------

  Scenario: Bridges with workers that share their lanes take turns on a thread
    Given 2 bridges with workers in this process that share their lanes, and a saver
    When 10 messages to one thread go through each
    Then the thread has counted all 20

  Scenario Outline: A run in a worker whose lease is lost saves nothing more: <kind>
    Given 2 bridges with workers in this process that share their lanes, and a saver
    When <kind> is in its worker, and its lease is lost
    Then its error is a LaneLostError, and the thread has nothing of what followed

    Examples:
      | kind                                      |
      | a node that waits                         |
      | a node that swallows its cancellation     |
      | a node of which the driver tells nothing  |

  @tdd_expected_fail
  Scenario: Without a fence in the worker, a run whose lease is lost saves what follows
    Given 2 bridges with workers in this process that share their lanes, and a saver
    And workers put no fence before the saver
    When a node of which the driver tells nothing is in its worker, and its lease is lost
    Then its error is a LaneLostError, and the thread has nothing of what followed

  Scenario: A worker asks for its lease once, not at each checkpoint
    Given 2 bridges with workers in this process that share their lanes, and a saver
    When a message to one thread goes through 5 nodes
    Then its worker has asked once for how long the lease lasts

  # -- the host ----------------------------------------------------------------------------------

  Scenario: A call that is cancelled before its first step ends
    Given a host of a sync function that waits
    When a call of it arrives, and is cancelled before its first step
    Then the call is cancelled, and the function was not called

  Scenario: A graph that is loaded after its bridge was closed is left at once
    Given a host of a graph whose factory waits
    When its start is cancelled, and the factory goes on
    Then the graph is left, and no task is
