Feature: Leftovers of an ended run do not reach later callers

  # -- output ------------------------------------------------------------------------------------

  @tdd_expected_fail
  Scenario: In a queue without runs, a failed run's output is in the next caller's stream
    Given a queue that a run has put "secret" into before it failed, and a consumer reads now and then
    When the next run puts "mine", and its caller reads
    Then the caller has "mine" alone

  Scenario Outline: The output of a run that <ended> is not read by the next caller, <reader>
    Given an agent that puts out what it is asked, and whose output a consumer reads now and then
    When a run puts out "secret" and <ended>
    And the next caller asks for "mine", and reads <reader>
    Then the caller has "mine" alone

    Examples:
      | ended        | reader                  |
      | fails        | when it has run         |
      | times out    | when it has run         |
      | is cancelled | when it has run         |
      | is cut off   | when it has run         |
      | is cancelled | in a stream of its own  |
      | times out    | in a stream of its own  |

  Scenario Outline: Later output of <a leftover> of a run that <ended> is refused
    Given an agent that puts out what it is asked
    When a run that <ended> leaves <a leftover> behind, which puts out "secret" during the next run
    Then the leftover has an AgentError that says "over", and the caller has "mine" alone

    Examples:
      | a leftover                | ended     |
      | a task                    | ends well |
      | a thread                  | ends well |
      | a thread                  | fails     |
      | a thread                  | times out |
      | a task that waits for room | ends well |

  Scenario: The unread output of a run that succeeded is kept for its readers
    Given an agent that puts out what it is asked, and whose output a consumer reads now and then
    When two runs put out "one" and "two", and a consumer reads twice
    Then the reader has "one" and "two"

  # -- state -------------------------------------------------------------------------------------

  Scenario Outline: A task that a run has left behind <where> leaves the agent IDLE
    Given an agent that puts out what it is asked
    When a run leaves a task behind that is <where> THINKING
    Then the agent is IDLE, and stays so when the task has ended

    Examples:
      | where             |
      | in a block of     |
      | about to enter    |

  # -- a stream of one's own ---------------------------------------------------------------------

  Scenario: Each caller's own stream has the output of its own run, though all call at once
    Given an agent that puts out what it is asked
    When 20 callers iterate over streams of their own requests at once
    Then each has what it asked for, and nothing else
    And nothing is left in the agent's output

  Scenario Outline: The stream of a single run ends as the run does: <how>
    Given an agent that puts out what it is asked
    When a caller iterates over the stream of a request, and the run <how>
    Then the stream gives "<items>", and ends with <end>

    Examples:
      | how                 | items  | end             |
      | ends well           | asked  | nothing         |
      | fails               | asked  | LookupError     |
      | times out           | asked  | RunTimeoutError |
      | finds another one in |       | AgentBusyError  |

  Scenario Outline: The stream of a single run that is <let go of> cancels that run
    Given an agent that puts out what it is asked
    When a caller takes one item of a run that hangs, and the stream is <let go of>
    Then the run is cancelled, and the agent answers the next request

    Examples:
      | let go of            |
      | closed               |
      | left by its block    |
      | dropped              |
      | dropped in a thread  |
      | closed on another loop |

  Scenario: The stream of a single run is closed without waiting if its loop is gone
    Given an agent that puts out what it is asked
    When a caller takes one item of a run that hangs, closes its loop, and closes the stream on another
    Then the agent answers the next request

  Scenario: A step on another loop than the run's is refused, and takes nothing
    Given an agent that puts out what it is asked
    When a caller begins the stream of a request, another loop steps, and the caller goes on
    Then the other loop got UsageError
    And the stream gives "asked", and ends with nothing

  Scenario: Cancelling a step of the stream of a single run does not cancel the run
    Given an agent that puts out what it is asked
    When a caller's step in a stream of its own is cancelled, and it takes another
    Then the stream gives "asked", and ends with nothing

  Scenario: The stream of a single run is delayed neither by a bounded output nor by other readers
    Given an agent whose output has room for one, which is full
    When a caller iterates over the stream of a request, and the run ends well
    Then the stream gives "asked", and ends with nothing

  Scenario Outline: <what> with a stream is refused, and the error names it
    Given an agent that puts out what it is asked
    When a stream is asked for with <what>
    Then InvalidArgumentError is raised, which says "<text>"

    Examples:
      | what                          | text      |
      | a request and a broadcast     | broadcast |
      | a policy and no request       | request   |
      | a request and a timeout of -1 | timeout   |

  # -- nothing is kept ---------------------------------------------------------------------------

  Scenario Outline: A run of <an agent> that is over is freed without the cyclic collector
    Given a runnable agent with <an agent>
    When it has run, and has been iterated over, while the collector does not run
    Then nothing of either run is kept

    Examples:
      | an agent                    |
      | an async function           |
      | a graph with a checkpointer |
