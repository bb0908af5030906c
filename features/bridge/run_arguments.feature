Feature: The arguments of a call reach its runs, through create_future_task and invoke alike

  Scenario Outline: A function that has a parameter for it gets <what>: <form>
    Given an open bridge on its own loop
    When a message with a thread and metadata goes to <form>, with a config
    Then the function got <what>

    Examples:
      | what                    | form                                          |
      | the message             | an async function of content, message         |
      | the message             | a sync function of content, message           |
      | the message             | a function of content, message, of a type that is not there |
      | the config              | an async function of content, config          |
      | the config              | a sync function of content, config=None       |
      | the message and the config | an async function of content, config, message |
      | the message and the config | a sync function of content, *, message, config |
      | the message             | a callable object                             |
      | the message             | a method                                      |
      | the message             | a partial                                     |
      | the message             | a function behind a wrapper that passes on    |
      | neither                 | a function whose only parameter is called message |
      | neither                 | a function of content, *args, **kwargs        |
      | neither                 | a lambda that binds config by a default       |
      | neither                 | a partial with a message of its own           |
      | neither                 | a function behind a wrapper of content alone  |
      | neither                 | a builtin that does not tell                  |

  Scenario: A function's config is a dictionary of its own, also when none was passed
    Given an open bridge on its own loop
    When two messages without thread or config go to a function that changes its config
    Then each had a config of its own, empty at first

  Scenario Outline: The metadata of a message is in the config of its run, by <entry>
    Given an open bridge on its own loop
    When a message with metadata goes by <entry> to a graph that tells its config, with metadata in the config
    Then the graph has seen both, the message's over the config's
    And neither was changed

    Examples:
      | entry              |
      | create_future_task |
      | invoke             |

  Scenario: The metadata of a message is kept with its checkpoints
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When a message with the metadata {"line": 7} goes to it on the thread "t"
    Then the newest checkpoint of the thread "t" has the metadata {"line": 7}

  @tdd_expected_fail
  Scenario: Plain "ainvoke": messages with the same run_id in their metadata are dropped, all but the first
    Given a graph that adds 1 to a checkpointed counter
    When 3 messages go to it on the thread "t" by plain "ainvoke", each with the run_id "nightly"
    Then the count of the thread "t" is 3

  Scenario: A run_id in the metadata of messages drops none of them
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When 3 messages go to it on the thread "t", each with the run_id "nightly"
    Then the count of the thread "t" is 3

  Scenario: Metadata whose keys are not strings stays with the message
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When a message with the metadata {7: "seven"} goes to it on the thread "t"
    Then the count of the thread "t" is 1

  Scenario Outline: create_future_task and invoke check the same: <call>
    Given an open bridge on its own loop
    When the code under test calls "bridge.<call>"
    Then <error> is raised, which says "<words>"
    And nothing was ever submitted to the bridge

    Examples:
      | call                                              | error                | words                        |
      | create_future_task(print, 1, name=7)              | InvalidTypeError     | name must be a string        |
      | invoke(print, name=7)                             | InvalidTypeError     | name must be a string        |
      | create_future_task(print, 1, config=7)            | InvalidTypeError     | config must be a mapping     |
      | invoke(print, config=7)                           | InvalidTypeError     | config must be a mapping     |
      | create_future_task(print, 1, errors='skip')       | InvalidArgumentError | cannot leave it out          |
      | create_future_task(print, 1, errors='ignore')     | InvalidArgumentError | must be 'raise' or 'emit'    |
      | invoke(print, errors='ignore')                    | InvalidArgumentError | 'raise', 'emit' or 'skip'    |

  Scenario Outline: Snapshots show a run's name, by <entry>
    Given an open bridge on its own loop
    When a message goes by <entry> to a waiting graph, with name="nightly"
    Then the snapshot has the name "nightly"

    Examples:
      | entry              |
      | create_future_task |
      | invoke             |
