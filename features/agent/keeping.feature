Feature: A pool keeps memories between runs, and writes what has changed

  Scenario: A run writes its own messages to a checkpointer, and no others
    Given a pool that keeps memories in a checkpointer which counts
    When a thread is sent 30 requests
    Then each run but the first has written 2 messages, and has removed none
    And another pool finds the requests 0 to 29 with their answers

  Scenario: Messages that a bounded memory drops are deleted from the checkpointer, too
    Given a pool that keeps memories of at most 4 messages in a checkpointer which counts
    When a thread is sent 30 requests
    Then each run from the third on has written 2 messages, and has removed 2
    And another pool finds the requests 28 to 29 with their answers

  Scenario Outline: A bounded memory holds through hundreds of runs: kept in <place>
    Given a pool that keeps memories of at most 10 messages in <place>
    When a thread is sent 400 requests
    Then each run was shown its request and at most 9 messages before
    And another agent, when asked one more, has the requests 396 to 399 with their answers

    Examples:
      | place          |
      | this process   |
      | a store        |
      | a checkpointer |

  Scenario Outline: Changes to a conversation between runs are saved in order: <change>
    Given a pool that keeps memories in a checkpointer which counts
    And a thread was sent 3 requests
    When other code has <change>, and the thread is sent another request
    Then another pool finds what the agent remembered

    Examples:
      | change                           |
      | taken out one in the middle      |
      | changed one in the middle        |
      | put one in the middle            |
      | put one in front                 |
      | turned the order round           |
      | repeated one with the same id    |
      | taken all                        |

  Scenario: A message that was there twice, and is there once, is found once
    Given a pool that keeps memories in a checkpointer which counts
    And a thread was sent 3 requests
    When other code has repeated one with the same id, and the thread is sent another request
    And other code has taken out what is there again, and the thread is sent another request
    Then another pool finds what the agent remembered

  Scenario: A model that gives all its messages one id is remembered in full
    Given a pool that keeps memories in a checkpointer which counts, and a model with one id
    When a thread is sent 5 requests
    Then another pool finds the requests 0 to 4 with their answers

  Scenario: A thread that was deleted from the checkpointer continues with the memory of its agent
    Given a pool that keeps memories of at most 4 messages in a checkpointer which counts
    And a thread was sent 3 requests
    When the thread is deleted from the checkpointer, and is sent another request
    Then another pool finds what the agent remembered

  Scenario: Deleting a thread from the checkpointer deletes the messages of the agent
    Given a pool that keeps memories in a checkpointer which counts
    And a thread was sent 3 requests
    When the thread is deleted from the checkpointer
    Then another pool finds nothing

  Scenario: In this process messages are kept as they are
    Given a pool that keeps memories in this process
    And a thread was sent 3 requests
    When another agent takes the place of its agent
    Then it remembers the very same messages

  Scenario Outline: A new conversation begins with the memory that the factory gives: <place>
    Given a pool whose agents begin with a system message, kept in <place>
    When a thread is sent 2 requests, each to another agent
    Then the agent remembers the system message once, and then the requests

    Examples:
      | place          |
      | this process   |
      | a store        |
      | a checkpointer |

  Scenario: A run whose memory cannot be counted fails, and is not remembered
    Given a pool whose agents count tokens, which fails once with the answer to "request 1"
    When a thread is sent "request 0", "request 1" in vain, and "request 2"
    Then the agent remembers the requests 0 and 2

  Scenario: The agents' graph may write to the checkpointer that the pool keeps memories in
    Given a pool and a graph with the same checkpointer, and room for one agent
    When requests are sent on the threads "a", "a", "b" and "a", the second of which fails
    Then the last agent remembers 2 requests, without the one that failed
