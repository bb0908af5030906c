Feature: A run has one thread, however it was named: the key of its lane, and the checkpointer's thread_id

  @tdd_expected_fail
  Scenario: Plain "ainvoke": 100 concurrent messages on a thread that the graph is bound to lose updates
    Given a graph that adds 1 to a checkpointed counter
    When 100 messages at once go by plain "ainvoke" to the graph bound to the thread "t"
    Then the count of the thread "t" is 100

  Scenario Outline: 100 messages whose thread is named by <way> are all counted, and their results have it
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When 100 messages are sent whose thread "t" is named by <way>
    Then the count of the thread "t" is 100
    And every result has the thread "t", and so has its source

    Examples:
      | way                                       |
      | the message                               |
      | the argument                              |
      | a function of the item                    |
      | the config of each call                   |
      | the config of the operator                |
      | a config in LangGraph's short form        |
      | the graph's with_config                   |
      | with_config below with_retry              |
      | with_config within a sequence             |
      | a RunnableBinding's config                |
      | all of these, one after another           |
      | the message and the config alike          |

  Scenario: A function's runs keep to the thread in their config too
    Given an open bridge on its own loop
    When 20 messages go to an async function, with the thread "t" in their config
    Then no more than 1 of them was ever on at once

  Scenario Outline: Two different threads for one run are refused with both named: <what>
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When the graph gets a message by "<call>"
    Then InvalidArgumentError is raised, which says "<words>"
    And nothing was ever submitted to the bridge

    Examples:
      | what                        | call                                                         | words                                     |
      | message and config          | task(graph, Message(1, 'a'), config=on('b'))                 | 'a' by the message, 'b' by the config     |
      | argument and config         | task(graph, 1, thread_id='a', config=on('b'))                | 'a' by the message, 'b' by the config     |
      | message and graph           | task(graph.with_config(on('b')), Message(1, 'a'))            | 'a' by the message, 'b' by the graph      |
      | config and graph            | task(graph.with_config(on('b')), 1, config=on('a'))          | 'a' by the config, 'b' by the graph       |
      | config and short form       | task(graph, 1, config={'thread_id': 'a', **on('b')})         | 'a' by the config, 'b' by the config      |
      | two graphs of a sequence    | task(graph.with_config(on('a')) \| graph.with_config(on('b')), 1) | 'a' by the graph's own config, 'b' by the graph |
      | an operator's config and graph | invoke(graph.with_config(on('b')), config=on('a'))        | 'a' by the config, 'b' by the graph       |
      | an operator's argument and config | invoke(graph, thread_id='a', config=on('b'))           | 'a' by the argument, 'b' by the config    |

  Scenario: In a stream, the message that names another thread than the config ends it
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When a stream on the threads "b", "a" goes through invoke with the thread "b" in its config
    Then the stream ends with InvalidArgumentError that names "a" and "b"

  Scenario Outline: A thread is a string everywhere: <what> is refused with the remedy
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When the graph gets a message by "<call>"
    Then InvalidTypeError is raised, which says "<words>"
    And nothing was ever submitted to the bridge

    Examples:
      | what                          | call                                            | words                             |
      | a UUID in a message           | Message(1, UUID(int=7))                         | convert it with str()             |
      | a UUID in the argument        | task(graph, 1, thread_id=UUID(int=7))           | convert it with str()             |
      | a UUID in a config            | task(graph, 1, config=on(UUID(int=7)))          | convert it with str()             |
      | a UUID bound to the graph     | task(graph.with_config(on(UUID(int=7))), 1)     | convert it with str()             |
      | an integer in a config        | task(graph, 1, config=on(7))                    | convert it with str()             |
      | an integer bound to the graph | task(graph.with_config(on(7)), 1)               | convert it with str()             |
      | an integer, short form        | task(graph, 1, config={'thread_id': 7})         | convert it with str()             |
      | an operator's integer         | invoke(graph, thread_id=7)                      | convert it with str()             |
      | an operator's config          | invoke(graph, config=on(7))                     | convert it with str()             |
      | a config that is not a mapping | task(graph, 1, config=[1])                      | config must be a mapping          |
      | an operator's config as such  | invoke(graph, config='t')                       | config must be a mapping          |
      | metadata that are none        | task(graph, 1, config={'metadata': ['t']})      | 'metadata' of the config must be a mapping |
      | a configurable that is none   | task(graph, 1, config={'configurable': 't'})    | configurable                      |

  Scenario Outline: A graph with a checkpointer needs a thread: <call> raises the remedy
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When the graph gets a message by "<call>"
    Then InvalidArgumentError is raised, which says "thread: give it one with StreamMessage(content, thread_id=...)"

    Examples:
      | call                                                            |
      | task(graph, HELLO).result(10)                                   |
      | task(graph, HELLO, retry=1).result(10)                          |
      | last(rx.of(HELLO).pipe(stream(graph, stream_mode='updates')))   |

  Scenario: A thread that only a function of the config names is enough, and a node's own ValueError stays
    Given an open bridge on its own loop
    When a message goes to a graph with a checkpointer whose config_factories name the thread, and whose node raises ValueError
    Then ValueError is raised, which says "of the node"

  Scenario Outline: A config without a thread leaves the message its own: <config>
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When a message on the thread "t" goes to the graph with config=<config>
    Then the count of the thread "t" is 1

    Examples:
      | config                                |
      | {}                                    |
      | {'configurable': None}                |
      | {'configurable': {'thread_id': None}} |
      | {'thread_id': None}                   |

  Scenario: The empty string is a thread like any other
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When 100 messages are sent whose thread "" is named by the message
    Then the count of the thread "" is 100
