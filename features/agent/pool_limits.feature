Feature: A pool is bounded in time and in what it keeps

  # -- deadlines ---------------------------------------------------------------------------------

  Scenario Outline: A store that hangs in <what> delays no call beyond its own timeout
    Given a pool of agents with 0.05 s, whose store hangs in <what> for the thread "stuck"
    When the threads "stuck", "stuck" and "other" are asked at once
    Then the calls on "stuck" are out of time, and "other" is answered
    And once the store goes on, "stuck" is answered, and finds what was kept before

    Examples:
      | what                 |
      | loading              |
      | keeping              |
      | loading, and is deaf |
      | keeping, and is deaf |

  Scenario: A run whose memory could not be kept is in no memory, and not in the thread of its graph
    Given a pool of agents over a graph with a checkpointer, whose store fails once to keep "lost"
    When "first" is asked, "lost" in vain, and "last"
    Then the store, the agent and the graph's thread have "first" and "last" with their answers

  Scenario: Writes that could not be undone after a failed run are undone by the next one
    Given a pool of agents over a graph with a checkpointer, failing with its store to keep "lost"
    When "first" is asked, "lost" in vain, and "last" when both work again
    Then the store, the agent and the graph's thread have "first" and "last" with their answers

  Scenario: The agent of a run that could not be undone is evicted last
    Given a pool of two agents, which fails with its store to keep "lost" on the thread "a"
    When "a" is asked "first", and "lost" in vain, then the threads "b" and "c", and "a" again
    Then the store has "first" and "last" with their answers

  Scenario: A run that is cancelled as its memory is kept is taken out of the store
    Given a pool of agents, whose store tells when it has kept "lost", and waits
    When "first" is asked, "lost" is cancelled once it is kept, and "last" is asked by another pool
    Then the store has "first" and "last" with their answers

  # -- forgetting --------------------------------------------------------------------------------

  Scenario Outline: A forgotten thread starts empty, and is no longer listed: kept in <place>
    Given a pool whose agents tell what they know, kept in <place>
    When the threads "a", "b" and "c" are sent requests, and "b" is forgotten
    Then the threads "a" and "c" are listed
    And "b" knows nothing of what was said, and "a" does

    Examples:
      | place          |
      | this process   |
      | a store        |
      | a checkpointer |

  Scenario: Forgetting a thread deletes that of its graph, too
    Given a pool of agents over a graph with a checkpointer of its own
    When the threads "a", "b" and "c" are sent requests, and "b" is forgotten
    Then the checkpointer of the graph knows "a" and "c" alone

  Scenario: A thread is forgotten when its run has ended, and the runs behind it start empty
    Given a pool whose agents answer when the gate opens
    When a thread is asked, forgotten, and asked again, all at once
    Then both are answered, and the second one had no memory of the first

  Scenario: Forgetting a thread does not wait for a place, and a message on it has one
    Given a pool of one agent, which is busy on the thread "a", and a memory of the thread "b"
    When "b" is forgotten, and asked at once
    Then "b" is forgotten while "a" is on, and asked when that has ended, without a memory

  Scenario: Forgetting has a deadline
    Given a pool of agents with 0.05 s, whose store hangs in forgetting for the thread "stuck"
    When "stuck" is to be forgotten within 0.05 s
    Then RunTimeoutError is raised

  Scenario: A run that would forget its own thread is refused
    Given a pool whose agents forget their own thread
    When a thread is asked
    Then AgentBusyError is raised

  # -- whose agent -------------------------------------------------------------------------------

  Scenario: A factory that returns one agent for two threads is refused, and the error names it
    Given a pool whose factory returns one agent for all threads
    When the threads "a", "b" and "a" are asked
    Then "a" is answered twice, and "b" is refused with InvalidArgumentError

  Scenario: A factory that is an async function is refused, and its coroutine closed
    Given a pool whose factory is an async function
    When a thread is asked
    Then InvalidTypeError is raised

  # -- a bound -----------------------------------------------------------------------------------

  Scenario: Of memories in this process, the least recently used are dropped
    Given a pool of one agent that keeps 3 memories in this process
    When the threads "a", "b", "c", "a" and "d" are sent requests
    Then the threads "c", "a" and "d" are listed
    And "b" knows nothing of what was said, and "a" does

  Scenario: A bound for memories that are kept elsewhere is refused, and the error names it
    When a pool is made that keeps 3 memories in a store
    Then InvalidArgumentError is raised, which says "max_memories"
