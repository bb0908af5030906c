Feature: Metrics count runs and time them, with labels that are bounded

  Background:
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2, overflow="drop_newest"
    And metrics of the bridge

  Scenario: Runs are counted by graph and status, and timed if they began
    When 3 messages are answered, 1 fails and 1 times out
    Then the metrics are
      | name                   | answer ok | fail error | wait timed_out |
      | rxlanggraph.runs       | 3         | 1          | 1              |
      | rxlanggraph.run        | 3         | 1          | 1              |
    And the metrics are
      | name                   | answer    | fail       | wait           |
      | rxlanggraph.queue_wait | 3         | 1          | 1              |
      | rxlanggraph.in_flight  | 0         | 0          | 0              |
      | rxlanggraph.pending    | 0         | 0          | 0              |
    And the durations have the buckets of the conventions

  Scenario: What waits and what runs is told meanwhile, and what was dropped
    When 1 message runs, 2 wait and 2 more come
    Then the metrics are
      | name                   | wait |
      | rxlanggraph.in_flight  | 3    |
      | rxlanggraph.pending    | 2    |
      | rxlanggraph.dropped    | 2    |
    When the gate opens, and all have ended
    Then the metrics are
      | name                   | wait |
      | rxlanggraph.in_flight  | 0    |
      | rxlanggraph.pending    | 0    |
      | rxlanggraph.dropped    | 2    |

  Scenario: A message that was dropped in one stage is counted as dropped once, and ends in both
    When the result of a message that was dropped passes through a second stage
    Then the metrics are
      | name                   | wait rejected | second rejected |
      | rxlanggraph.runs       | 1             | 1               |
    And the metrics are
      | name                   | wait |
      | rxlanggraph.dropped    | 1    |

  Scenario Outline: Of thousands of messages under faults none is left in flight, where <fault>
    Given an open bridge on its own loop with max_concurrency=4, max_pending=8
    And metrics of the bridge
    When 4 threads send 600 messages that fail, time out, are cancelled and refused, and halfway <fault>
    Then no message is in flight or pending
    And as many messages were counted as were sent

    Examples:
      | fault             |
      | nothing happens   |
      | a cleanup begins  |
      | the bridge closes |
      | the loop stops    |

  Scenario: Names that are made of data do not make more labels
    When 300 messages are answered, each under a name of its own
    Then at most 101 graphs have labels, and all 300 runs are counted

  Scenario: Two bridges have one sum
    When 3 messages are answered here, and 4 on another bridge with the same metrics
    Then the metrics are
      | name                   | answer ok |
      | rxlanggraph.runs       | 7         |

  Scenario: The lag of a loop is told while the bridge is open, the longest of several
    Given an open bridge on its own loop with blocked_after=0.05
    And metrics of the bridge, another bridge, and their loops
    When a node blocks the loop until that is noticed, 1 time
    Then the lag of the loop was in the metrics, and is not once the bridges are closed

  Scenario: Only a bridge has a loop to observe
    When the loop of a registry is observed
    Then InvalidTypeError is raised, which says "must be an RxPyLangGraphBridge"

  Scenario: Metrics do not keep a bridge alive
    When 5 bridges whose loops are observed are closed and dropped
    Then none of them is left

  Scenario Outline: <Prometheus> has these names and labels
    When a message is answered, and one dropped, on a watched bridge whose metrics <Prometheus> reads
    Then it reads these lines, whatever their values
      """
      rxlanggraph_claims_total{queue="work"}
      rxlanggraph_dropped_total{graph="wait"}
      rxlanggraph_in_flight{graph="wait"}
      rxlanggraph_loop_lag_seconds
      rxlanggraph_pending{graph="wait"}
      rxlanggraph_queue_wait_seconds_count{graph="wait"}
      rxlanggraph_run_seconds_count{graph="wait",status="ok"}
      rxlanggraph_runs_total{graph="wait",status="ok"}
      rxlanggraph_runs_total{graph="wait",status="rejected"}
      """
    And the buckets of its histograms are those of the conventions, with all of the durations

    Examples:
      | Prometheus                               |
      | OpenTelemetry's exporter for Prometheus  |
      | Prometheus's own client                  |

  Scenario: Prometheus's own client counts thousands of messages under faults, and needs no SDK
    Given an open bridge on its own loop with max_concurrency=4, max_pending=8
    And metrics of the bridge for Prometheus, where OpenTelemetry's SDK is disabled
    When 4 threads send 600 messages that fail, time out, are cancelled and refused, and halfway nothing happens
    Then Prometheus reads as many runs as were sent, and none in flight or pending

  @once
  Scenario: Where Prometheus's client is not installed, the import says which extra brings it
    When the metrics for Prometheus are imported where its client is not installed
    Then MissingExtraError is raised, which says "pip install 'rxlanggraph[metrics]'"

  Scenario: A name that cannot be encoded does not cost Prometheus the page
    When messages and claims are counted under names that are not Unicode, or have quotes and lines
    Then Prometheus reads each of these names, with what could be encoded

  Scenario: Names that look alike in the labels have one sum
    When messages are counted under two names that have one label
    Then Prometheus reads this label once, with 2 runs

  @once
  Scenario: A registry refuses a second object, and no registry asks for the values to know that
    Given metrics for Prometheus in a registry of their own
    When others are registered there
    Then that is an error, which says that they are duplicates

  Scenario: Two objects with one meter provider have one sum
    When 3 messages are answered here, and 4 on another bridge with other metrics of the same provider
    Then the metrics are
      | name                   | answer ok |
      | rxlanggraph.runs       | 7         |
      | rxlanggraph.run        | 7         |

  @once
  Scenario: Objects that were made before and after the global provider was set have one sum
    When a program makes metrics, sets the global meter provider, and makes more of each kind
    Then it has read the sum of what all have counted

  Scenario: A meter provider that is dropped takes its counts with it
    When metrics are made with 3 meter providers, which are shut down and dropped
    Then none of their counts are left

  Scenario: Without durations there are no histograms, and all else
    Given metrics of the bridge with durations=False
    When 3 messages are answered, 1 fails and 1 times out
    Then the metrics are
      | name                   | answer ok | fail error | wait timed_out |
      | rxlanggraph.runs       | 3         | 1          | 1              |
    And there are no metrics rxlanggraph.run and rxlanggraph.queue_wait

  Scenario: Claims are counted by queue, and queues that are made of data have one label
    When 4 threads count 2 claims of each of 300 queues
    Then at most 101 queues have labels, and all 2400 claims are counted

  Scenario Outline: <what> is refused
    When claims are counted of the queue <queue>, <count> of them
    Then <error> is raised, which says "<says>"

    Examples:
      | what                    | queue  | count | error                | says                     |
      | A queue without a name  | None   | 1     | InvalidTypeError     | queue must be a string   |
      | A count of text         | "work" | "1"   | InvalidTypeError     | count must be an integer |
      | A negative count        | "work" | -1    | InvalidArgumentError | count must be 0 or more  |
