Feature: Any number of bridges share a loop, and its default executor stays the host's

  # -- whose threads

  Scenario Outline: Sync nodes are executed in the threads of their own bridge, whichever was opened last: <kind> loop
    Given a running loop of <kind>, whose default executor is named "host"
    And 3 bridges that adopt it
    When each bridge runs a graph with a sync node
    Then each node was executed in a worker thread of its own bridge

    Examples:
      | kind    |
      | asyncio |
      | uvloop  |

  Scenario Outline: Runs on one thread_id do not overlap though another bridge was opened later: <kind> loop
    Given a running loop of <kind>, whose default executor is named "host"
    And 2 bridges that adopt it, with max_concurrency=1
    When 4 messages on one thread_id go through the first to a blocking sync node, each with a timeout
    Then no two of the 4 nodes are ever on at once

    Examples:
      | kind    |
      | asyncio |
      | uvloop  |

  Scenario Outline: A bridge opened in a run of another one has its own threads, and does not affect the other's: <home>
    Given an outer bridge on <home>
    When a run of it opens a second bridge on the running loop, uses it, and closes it
    Then sync code of the outer run was executed in the outer bridge's threads before, during and after
    And sync code of the inner run was executed in the inner bridge's threads

    Examples:
      | home              |
      | a loop of its own |
      | a running loop of asyncio |
      | a running loop of uvloop |

  Scenario: Work that a finished run has left behind goes to the host's executor
    Given a running loop of asyncio, whose default executor is named "host"
    And 1 bridges that adopt it
    When a run leaves a task behind that calls asyncio.to_thread after its end
    Then that call was executed in a thread of the host's executor

  # -- what the host has

  Scenario Outline: The host's default executor serves the host, in whatever order three bridges close: <kind> loop
    Given a running loop of <kind>, whose default executor is named "host"
    When 3 bridges adopt it and close, in each of the 6 orders
    Then the host's asyncio.to_thread was always executed in a thread named "host"

    Examples:
      | kind    |
      | asyncio |
      | uvloop  |

  Scenario Outline: asyncio.to_thread of a host without an executor of its own works after two bridges: <kind> loop
    Given a running loop of <kind>
    When 2 bridges adopt it and close, the first one first
    Then the host's asyncio.to_thread works, and the loop is as it was

    Examples:
      | kind    |
      | asyncio |
      | uvloop  |

  @tdd_expected_fail
  Scenario: Plain asyncio: two users of set_default_executor restore it in the wrong order
    Given a running loop of asyncio
    When 2 users of set_default_executor adopt it and close, the first one first
    Then the host's asyncio.to_thread works, and the loop is as it was

  Scenario: An executor that the host sets while a bridge is open is the host's from then on
    Given a running loop of asyncio
    And 1 bridges that adopt it
    When the host sets a default executor named "later"
    Then the host's asyncio.to_thread is executed in a thread named "later"
    And sync code of the bridge is executed in a thread of the bridge
    When the bridges close
    Then the host's asyncio.to_thread is executed in a thread named "later"

  Scenario: A wrapper that others have put around the loop's run_in_executor stays when the bridges leave
    Given a running loop of asyncio
    And 1 bridges that adopt it
    When the host wraps the loop's run_in_executor
    And the bridges close
    Then the host's asyncio.to_thread goes through that wrapper
    When another bridge adopts the loop
    Then sync code of the bridge is executed in a thread of the bridge

  Scenario: A loop on which no attribute can be set is refused, with the remedy
    When a bridge is to adopt a loop that has no attributes of its own
    Then InvalidTypeError is raised, which says "let the bridge own its loop: RxPyLangGraphBridge()"

  # -- a loop of the bridge's own

  Scenario: On a loop of its own, work of no run that never ends does not hold up close
    Given an open bridge on its own loop
    When a blocking call that belongs to no run goes to the default executor of that loop
    And the bridge is closed
    Then the report is empty, though the call is still on

  Scenario Outline: A saver that another loop <uses> is named, with the remedy, in place of asyncio's error
    Given an open bridge on its own loop
    When ten messages go to a graph whose AsyncSqliteSaver was opened on another loop, which <uses> it
    Then each of them has failed with InvalidArgumentError, which names the saver and the remedy

    Examples:
      | uses            |
      | uses            |
      | has closed      |
      | has just closed |
