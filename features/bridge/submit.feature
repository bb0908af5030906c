Feature: submit awaits room instead of blocking a thread

  Scenario Outline: A coroutine on <loop> submits 60 messages to a bridge with room for <pending>
    Given an open bridge on <home> loop with max_concurrency=2, max_pending=<pending>
    When a coroutine on <loop> submits 60 messages, one after another
    Then all 60 are answered, no more than <bound> were in flight, and that loop went on meanwhile

    Examples:
      | home       | loop              | pending | bound |
      | its own    | the bridge's loop | 1       | 4     |
      | its own    | another loop      | 1       | 4     |
      | its own    | another loop      | 8       | 11    |
      | an adopted | the bridge's loop | 1       | 4     |
      | an adopted | another loop      | 1       | 4     |

  @tdd_expected_fail
  Scenario: create_future_task blocks the loop of a coroutine that submits
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a coroutine on another loop sends two messages with create_future_task, where one has room
    Then that loop goes on while it waits for room

  Scenario: submit does not block the loop of a coroutine that submits
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a coroutine on another loop sends two messages with submit, where one has room
    Then that loop goes on while it waits for room

  Scenario: Threads that block and coroutines that await are served in order of arrival
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a thread, a coroutine, a thread and a coroutine wait for room, in this order
    Then their messages are run in this order

  Scenario Outline: A coroutine that awaits room is freed by <what>
    Given an open bridge on an adopted loop with max_concurrency=1, max_pending=1
    When a coroutine on another loop awaits room
    And it is freed by <what>
    Then it <ends>, and nothing waits for room

    Examples:
      | what                       | ends                                 |
      | room                       | has submitted its message            |
      | the close of the bridge    | raises BridgeClosedError             |
      | the end of the loop        | raises LoopUnavailableError          |
      | a pause of the loop        | raises LoopUnavailableError          |
      | its cancellation           | raises CancelledError                |
      | its timeout                | raises TimeoutError                  |

  Scenario: A coroutine that is cancelled just when it gets room passes it on
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When the first of two coroutines that await room is cancelled just when it gets it
    Then the second one gets it

  Scenario: A coroutine whose loop was closed while it awaited room takes none
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When the loop of the first of two coroutines that await room is closed
    Then the second one gets it

  Scenario: A run that awaits room that only its own end can free is refused
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1
    When a run submits two messages to its own bridge, and awaits room
    Then submit raises DeadlockError: "a larger max_pending"

  Scenario: What a coroutine that a result started submits waits for room like all else
    Given an open bridge on its own loop with max_concurrency=1, max_pending=2
    When a done-callback starts a coroutine that submits 50 messages
    Then all 50 are answered, and no more than 5 were in flight

  Scenario Outline: With overflow="<policy>" there is nothing to await
    Given an open bridge on its own loop with max_concurrency=1, max_pending=1, overflow="<policy>"
    When a run holds the slot, and a coroutine submits 3 messages
    Then submit <outcome>

    Examples:
      | policy      | outcome                                      |
      | error       | returned 1 future and raised BacklogFullError |
      | drop_newest | returned 3 futures, 2 of them of dropped runs |
      | drop_oldest | returned 3 futures, 2 of them of dropped runs |

  Scenario Outline: submit has the arguments of create_future_task: <case>
    Given an open bridge on its own loop
    Then submit with <case> does what create_future_task does

    Examples:
      | case                    |
      | errors="emit"           |
      | thread_id="t"           |
      | name="n"                |
      | timeout=-1              |
      | errors="skip"           |
      | context=1               |

  Scenario: An argument that submit does not have is refused
    Given an open bridge on its own loop
    Then submit with an unknown argument is refused: "submit() has no argument 'tread_id'"

  Scenario: submit has exactly the keyword arguments of create_future_task
    Then RunArguments names the keyword arguments of create_future_task
