Feature: Messages of one thread run one after another, so that no update is lost

  Scenario: Plain LangGraph leaves a checkpointed counter at 1 after 100 concurrent messages
    Given a graph that adds 1 to a checkpointed counter, and waits until all have read it
    When 100 plain "ainvoke" of it run at once on one thread
    Then the counter of that thread is 1

  Scenario Outline: Through the bridge the counter is exactly 100: <way>, fed from <feeders> thread(s), <home> loop
    Given an open bridge on <home> loop
    And a graph that adds 1 to a checkpointed counter
    When <feeders> thread(s) send it 100 messages on one thread through <way>
    Then the counter of that thread is 100, and the results are 1 to 100, none twice

    Examples:
      | way                | feeders | home       |
      | create_future_task | 1       | its own    |
      | create_future_task | 8       | its own    |
      | create_future_task | 8       | an adopted |
      | invoke             | 1       | its own    |
      | invoke             | 8       | its own    |
      | invoke             | 8       | an adopted |
      | RxPY's flat_map    | 8       | its own    |

  Scenario Outline: Every one of 50 threads counts to 10, its thread chosen by <choice>
    Given an open bridge on its own loop
    And a graph that adds 1 to a checkpointed counter
    When 500 messages for 50 threads go through invoke, the thread chosen by <choice>
    Then the counter of each of the 50 threads is 10

    Examples:
      | choice              |
      | the message         |
      | a function          |

  Scenario: Messages of one thread run in order of arrival, and never overlap
    Given an open bridge on its own loop
    When 100 messages on the thread "t" go to a graph with a sync node
    Then they ran one at a time, in order

  Scenario: A crowded thread delays no other
    Given an open bridge on its own loop with max_concurrency=2
    When 50 messages on the thread "crowded" go to a waiting graph
    And 50 messages without a thread go to an async function
    Then those without a thread are answered while the crowded one stands still

  Scenario Outline: A thread's next run starts after one that <how>, but not before that has ended
    Given an open bridge on its own loop
    When a message on the thread "t" goes to <kind>, which <how>
    And another one on the thread "t" goes to an async function
    Then that one is answered, and began after the first had ended

    Examples:
      | how          | kind                              |
      | fails        | a failing graph                   |
      | is cancelled | a waiting graph                   |
      | is cancelled | a graph with a blocking sync node |
      | times out    | a waiting graph                   |
      | times out    | a graph with a blocking sync node |
      | times out    | a graph that swallows cancelling  |

  Scenario: A message that was cancelled while it waited for its thread lets the next one pass
    Given an open bridge on its own loop
    When 5 messages on the thread "t" go to a waiting graph
    And the second to the fourth of them are cancelled, and the gate opens
    Then only the first and the fifth began

  Scenario: A stream emits the results of one thread in order, whichever of its sources is slow
    Given an open bridge on its own loop
    When a feeder of a stream stands still behind its hand-over until the next message is answered
    Then the subscriber gets both results in order of their messages
