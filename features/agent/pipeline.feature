Feature: Agents work in a pipeline like graphs, one for each thread if asked for

  Scenario: An agent answers each message of a stream, one after another
    Given an open bridge on its own loop
    And a runnable agent that answers with the request
    When 50 messages go through invoke of the agent
    Then each has its own answer, in order, and the agent was never run twice at once

  Scenario Outline: Every thread has an agent of its own, whose memory is its own: kept in <place>
    Given an open bridge on its own loop
    And a pool of at most 100 agents that keeps memories in <place>
    When 8 feeders send 200 messages on 20 threads
    Then 20 agents were made
    And each answer tells how many messages its thread had before

    Examples:
      | place        |
      | this process |
      | a store      |

  Scenario Outline: An agent that was retired finds its memory again, kept in <place>
    Given an open bridge on its own loop
    And a pool of at most 3 agents that keeps memories in <place>
    When 10 rounds of a message on each of 6 threads are sent
    Then never more than 3 agents were there at once
    And at least 33 agents were made
    And each answer tells how many messages its thread had before

    Examples:
      | place                 |
      | this process          |
      | a store               |
      | a checkpointer        |
      | a SQLite checkpointer |

  Scenario: A conversation of one process is known in the next
    Given an open bridge on its own loop
    And a pool of at most 3 agents that keeps memories in a SQLite checkpointer
    When 1 feeder sends 3 messages on 1 thread
    And another pool with the same checkpointer takes its place
    And 1 feeder sends 2 messages on 1 thread
    Then the last answer tells of 4 earlier requests

  Scenario: While all agents are busy, a message on another thread waits, and is answered
    Given a pool of at most 2 agents that wait for the gate
    When 5 messages on as many threads are sent, and the gate opens when 2 agents are at work
    Then there were 2 agents until it opened, and all 5 are answered

  Scenario: A message that is cancelled while it waits for an agent blocks no other
    Given a pool of at most 1 agent that waits for the gate
    When of three messages that wait behind a busy agent the first is cancelled as it is woken
    Then the others are answered

  Scenario: A run that fails leaves the thread's memory as it was, and the next is answered
    Given an open bridge on its own loop
    And a pool whose agents fail on demand
    When a thread is sent "a", "fail" and "b"
    Then the second has failed with LookupError, and the third knows of 1 earlier request

  Scenario: A run whose memory cannot be kept fails, and is not remembered
    Given an open bridge on its own loop
    And a pool that keeps memories in a store which fails once, at "b"
    When a thread is sent "a", "b" and "b"
    Then the second has failed with ConnectionError, and the third knows of 1 earlier request

  Scenario Outline: A factory that <fails> fails its message, and takes no agent's place
    Given an open bridge on its own loop
    And a pool of at most 1 agent whose factory <fails> at first
    When a thread is sent "a", "b" and "c"
    Then the first has failed with <error>, and the third knows of 1 earlier request

    Examples:
      | fails            | error            |
      | raises           | ConnectionError  |
      | returns no agent | InvalidTypeError |

  Scenario: Each thread has a conversation of its own in its agent's graph, too
    Given a pool whose agents have one name, and one graph with a checkpointer
    When 3 rounds of a request on each of 4 threads are sent
    Then the graph has counted the requests of each thread: 1, 2 and 3

  Scenario Outline: An agent that would wait for itself is refused at once: <way>
    Given a pool whose agents ask each other, and wait forever
    When the agent of thread "a" is asked to ask <way>
    Then AgentBusyError is raised, which says "own thread 'a'"
    And the agent of thread "a" answers the next request

    Examples:
      | way                         |
      | its own thread              |
      | thread "b", which asks "a"  |

  Scenario: An agent may ask the agents of other threads, and its own when its run is over
    Given a pool whose agents ask each other, and wait forever
    When the agent of thread "a" asks thread "b", and leaves a task that asks "a" when it is over
    Then both have answered

  Scenario: A message without a thread is refused, with the remedy
    Given an open bridge on its own loop
    And a pool of at most 3 agents that keeps memories in this process
    When a message without a thread is sent
    Then InvalidArgumentError is raised, which says "thread_id="

  Scenario Outline: A pool called without a bridge reads the thread as a bridge does: <config>
    Given an open bridge on its own loop
    And a pool of at most 3 agents that keeps memories in this process
    When the pool itself is asked with config=<config>
    Then <outcome>

    Examples:
      | config                                                 | outcome                                                      |
      | {"configurable": {"thread_id": "t"}}                   | it has answered                                              |
      | {"thread_id": "t"}                                     | it has answered                                              |
      | {"configurable": {"thread_id": 7}}                     | InvalidTypeError is raised, which says "convert it with str()" |
      | {"thread_id": "a", "configurable": {"thread_id": "b"}} | InvalidArgumentError is raised, which says "given twice"     |

  Scenario Outline: <what> is refused, and the error names it
    When a pool is made with <what>
    Then <error> is raised, which says "<text>"

    Examples:
      | what               | error                | text                  |
      | no agents          | InvalidArgumentError | max_agents            |
      | no factory         | InvalidTypeError     | agent_factory         |
      | a dict as its place | InvalidTypeError    | store or checkpointer |

  Scenario Outline: The runtime context of a message reaches the graph of its agent: through <call>
    Given an open bridge on its own loop
    And a pool of agents over a graph that answers with its context
    When the context is passed by <call>
    Then the answer is the context

    Examples:
      | call                                   |
      | bridge.invoke of the pool              |
      | bridge.create_future_task of the agent |
      | agent.run                              |
      | agent.run_sync                         |
      | agent.stream                           |
      | agent.stream of tokens                 |

  Scenario Outline: An argument that an agent cannot use is refused: <call>
    Given an open bridge on its own loop
    And a pool of agents over a graph that answers with its context
    When an agent is given that argument by "<call>"
    Then InvalidArgumentError is raised, which says "<words>"

    Examples:
      | call                                             | words                                       |
      | bridge.invoke(pool, durability='exit')           | <AgentPool 'agents'>: an agent's graph gets |
      | bridge.stream(pool, stream_mode='messages')      | give the agent itself a stream_mode         |
      | run(BaseAgent('b').run('?', context=1))          | has no graph, and context is for one        |
      | pool_agent.stream(context=1)                     | are for a stream with a request             |
