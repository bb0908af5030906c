Feature: A run, and a stream of results, can be awaited on any asyncio loop

  # -- a run

  Scenario Outline: A run is awaited on <where> loop, by <form>
    Given an open bridge on <home> loop
    When a run is awaited on <where> loop, by <form>
    Then it gives the run's result

    Examples:
      | home       | where        | form               |
      | its own    | another      | await              |
      | its own    | another      | gather             |
      | its own    | another      | wait_for           |
      | its own    | another      | ensure_future      |
      | its own    | the bridge's | await              |
      | an adopted | another      | await              |
      | an adopted | the bridge's | await              |
      | an adopted | the bridge's | gather             |
      | its own    | a debugged   | await              |
      | its own    | another      | await, once done   |

  Scenario: An exception of a run is raised unchanged where it is awaited
    Given an open bridge on its own loop
    When a run that fails is awaited on another loop
    Then awaiting raises the very exception of the graph

  Scenario: A run that is cancelled raises CancelledError where it is awaited
    Given an open bridge on its own loop
    When a run is cancelled while it is awaited on another loop
    Then CancelledError is raised

  Scenario Outline: <How> while a run is awaited on another loop <does> the run
    Given an open bridge on its own loop
    When <how> comes while a run is awaited on another loop
    Then it <does> the run

    Examples:
      | How                         | how                         | does    |
      | Cancelling who awaits       | cancelling who awaits       | cancels |
      | A wait_for that times out   | a wait_for that times out   | cancels |
      | Cancelling who is shielded  | cancelling who is shielded  | keeps   |

  Scenario: A plain function that returns a run's future answers with the run's result
    Given an open bridge on its own loop with max_concurrency=2
    When a plain function hands back another run
    Then its content is that run's result

  # -- a stream

  Scenario Outline: A stream through <pipeline> is awaited on <where> loop, and ends
    Given an open bridge on <home> loop
    When messages 0 to 9 from <source> go through <pipeline>, awaited on <where> loop
    Then awaiting gives what the pipeline gives last

    Examples:
      | home       | where        | source             | pipeline                    |
      | its own    | another      | an iterable        | invoke                      |
      | its own    | another      | an iterable        | invoke and map              |
      | its own    | another      | an iterable        | invoke and to_list          |
      | its own    | another      | an iterable        | two stages                  |
      | its own    | a debugged   | an iterable        | invoke and map              |
      | its own    | another      | a thread           | invoke                      |
      | its own    | the bridge's | an iterable        | invoke                      |
      | an adopted | another      | an iterable        | invoke and map              |
      | an adopted | the bridge's | an iterable        | invoke and map              |
      | an adopted | the bridge's | a thread           | invoke                      |
      | its own    | another      | an iterable        | to_future, observed on the loop |
      | its own    | another      | an iterable        | share, observed on the loop |
      | its own    | another      | an iterable        | flat_map of futures, observed on the loop |

  Scenario Outline: An awaited stream ends with <end> too
    Given an open bridge on its own loop
    When an awaited stream ends with <end>
    Then <error> is raised

    Examples:
      | end                              | error                           |
      | an error of its graph            | ValueError                      |
      | an error of its source, elsewhere | LookupError                    |
      | nothing                          | SequenceContainsNoElementsError |

  Scenario: What is to be called behind the items of a loop that is closed is called at once
    When a call behind the items for a loop is asked for, and the loop is closed
    Then it is made at once

  Scenario: Cancelling the task that awaits a stream cancels its runs
    Given an open bridge on its own loop
    When who awaits a stream of waiting runs is cancelled
    Then the registry becomes idle, and all that began have ended

  Scenario: When an awaited stream fails, its other runs are cancelled before the awaiting loop gets the error
    Given an open bridge on its own loop
    When one of two runs fails while the loop that awaits their stream stands still
    Then the other run is cancelled meanwhile
    And ValueError is raised
