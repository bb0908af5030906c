Feature: A message that does not end well is logged, with fields that programs can read

  Background:
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="drop_newest"
    And traces of the bridge
    And logs of the bridge, with its traces

  Scenario: A message that is answered is not logged
    When a message on thread "t" is answered
    Then nothing is logged

  Scenario Outline: A message that <ends> is logged once
    When a message on thread "t" <ends>
    Then one record is logged, with the level <level> and these fields
      | event   | status   | thread_id | error_type | limit   | attempt   |
      | <event> | <status> | t         | <error>    | <limit> | <attempt> |
    And it has the ids of the message and of its span
    And its text is that of the error, and not the content

    Examples:
      | ends               | level   | event         | status    | error                               | limit   | attempt |
      | fails              | ERROR   | run_failed    | error     | ValueError                          | None    | 1       |
      | exceeds its time   | WARNING | run_timed_out | timed_out | rxlanggraph.errors.RunTimeoutError  | attempt | 1       |
      | is dropped         | WARNING | run_dropped   | rejected  | rxlanggraph.errors.RunDroppedError  | None    | 0       |
      | is refused as busy | WARNING | run_rejected  | rejected  | rxlanggraph.errors.ThreadBusyError  | None    | 0       |

  Scenario: A message that is cancelled is logged as INFO, which is not a warning
    When a message on thread "t" is cancelled
    Then nothing is logged

  Scenario: The record of a failure has its traceback
    When a message on thread "t" fails
    Then the record has the traceback of ValueError

  Scenario Outline: Of one message that goes to two graphs, the record has the span of its own
    Given logs of the bridge, with its traces, that were added <moment> traces
    When one message goes to a graph that fails, and then to one that answers
    Then the records have the ids of the span of the graph that failed

    Examples:
      | moment |
      | before |
      | after  |

  Scenario: Fields that a record factory of the application has set do not lose the record
    Given a record factory that sets trace_id and status
    When a message on thread "t" fails
    Then one record is logged, with the level ERROR and these fields
      | event      | status |
      | run_failed | error  |
    And it has the ids of the message and of its span

  Scenario: A result that passes through a second stage is logged once
    When a failed result passes through a second stage
    Then one record is logged, with the level ERROR and these fields
      | event      | status | graph |
      | run_failed | error  | fail  |

  Scenario: An error whose text raises is logged without it
    When a message on thread "t" fails with an error whose text raises
    Then one record is logged, with the level ERROR and these fields
      | event      | status |
      | run_failed | error  |

  Scenario: Lone surrogates in names, ids and errors do not lose the record in a file
    Given a handler of the logs that writes a file in UTF-8, with all fields
    When a message with lone surrogates in its name, ids and error fails
    Then the file has the record, with the traceback, and what could be encoded

  Scenario: A stuck run of a report is logged with its stack
    When a message on thread "t" does not end, and the report of the cleanup is logged
    Then one record is logged, with the level ERROR and these fields
      | event     | thread_id |
      | run_stuck | t         |
    And it has the stack of the run

  Scenario Outline: <what> is refused as <argument>
    When logs are made with <argument> as <what>
    Then InvalidTypeError is raised, which says "<argument> must be"

    Examples:
      | argument | what     |
      | logger   | a string |
      | traces   | a string |

  Scenario: A blocked loop is logged by the bridge with the same kind of fields
    Given an open bridge on its own loop with blocked_after=0.05
    When a node blocks the loop until that is logged
    Then the record has the fields event, bridge, where, duration and stack of a blocked loop
