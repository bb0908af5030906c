Feature: A snapshot has a bounded picture of what happens in a bridge

  Scenario: What is in flight is there with its node, and what has ended with its status
    Given a bridge that is looked at
    When a message waits in its node, a second one on its thread behind it, and a third has ended
    Then the snapshot has the first in the node work, the second waiting for its thread, and the third ended
    When the gate opens, and each message has ended
    Then the snapshot has three that have ended, and nothing in flight
    And its counters are those of the registry

  Scenario Outline: The ends of runs in flight are there, with <others> told of them before
    Given a bridge with <others> told of its runs
    When one message waits in its node, one behind it, one that will ask, and one that will fail
    And it is looked at now, and the gate opens
    Then the snapshot has the end of each once, with durations, the failure and the question
    And those told before were told of each once

    Examples:
      | others   |
      | no hooks |
      | hooks    |

  Scenario Outline: Failures are counted by kind, with what they say only if that is shown
    Given a bridge that is looked at, with content <shown>
    When 3 messages fail, 2 take too long and 1 asks
    Then the snapshot has 3 failures of ValueError in check, and 2 of RunTimeoutError in work
    And what messages say is <there> in the snapshot

    Examples:
      | shown  | there     |
      | hidden | not there |
      | shown  | there     |

  Scenario: Nodes are exact where the page is told of each
    Given a bridge that is looked at, with each node
    When one message has ended
    Then its nodes are work and check, one after the other, each ok

  Scenario: Nodes that a snapshot has found at work stay with their run
    Given a bridge that is looked at
    When a message waits in its node, is looked at twice, and ends
    Then its only node is work, which ended with its run

  Scenario: A run that is active for too long is stuck, and its stack says where
    Given a bridge that is looked at, where runs are stuck at once
    When a message waits in its node
    Then the snapshot has it as stuck, with a stack that names wait_async

  Scenario: What blocks the loop is there with its stack
    Given a bridge that is looked at
    When a callback blocks the loop until it is named
    Then the snapshot has what blocked the loop, with a stack that names held_up

  Scenario: Ten thousand ends told by eight threads are all counted, and few are kept
    Given a board
    When 8 threads tell it of 10000 ends of 500 kinds of failure
    Then it has counted all of them
    And it keeps 1000 of them, 200 kinds, 20 slowest, and nothing uncounted
    And a snapshot of it has fewer than 300000 characters

  Scenario: Ends that are told while it is read are counted once
    Given a board
    When 4 threads tell it of 10000 ends, while another reads it all the time
    Then it has counted all of them

  Scenario Outline: A <way> that <does> while its thread is <inside> finds all as it should be
    Given a live board that its own thread may enter
    When a <way> comes in at each place of <inside>, and <does>
    Then each time all was as it should be, at more than <places> places

    Examples:
      | way            | inside                   | does                         | places |
      | signal handler | telling it of an end     | tells it of another end      | 30     |
      | finalizer      | telling it of an end     | tells it of another end      | 30     |
      | signal handler | telling it of an end     | reads it                     | 30     |
      | signal handler | telling it of a question | tells it of another question | 30     |
      | signal handler | reading it               | tells it of another end      | 100    |
      | finalizer      | reading it               | tells it of another question | 100    |
      | signal handler | answering a question     | tells it of another question | 10     |

  @tdd_expected_fail
  Scenario: Control: a board that counts on whether its thread is counting or not
    Given a live board that counts on that its own thread may enter
    When a signal handler comes in at each place of telling it of an end, and tells it of another end
    Then each time all was as it should be, at more than 30 places

  Scenario: A clock that is set back, or far ahead, loses no end and stops nothing
    Given a board
    When the clock is set back by an hour, and ahead by a day, between ends
    Then the history has those of its minutes, and all are among the recent ones

  Scenario: A snapshot of a bridge with many waiting messages stays small
    Given a bridge with one slot that is looked at
    When 5000 messages wait behind one
    Then the snapshot has the one that runs, 50 that wait, and how many more there are

  Scenario: A bridge that is dropped unclosed is collected, looked at or not
    Given a bridge that is looked at
    When the bridge that is looked at is dropped
    Then it is collected, and the source says that it is closed

  Scenario Outline: A question with <value> as its value is shown as JSON
    When a question with <value> is shown
    Then it is text or data that JSON can hold, of at most 20100 characters

    Examples:
      | value                    |
      | nan                      |
      | a list that holds itself |
      | a class whose repr fails |
      | a million characters     |
      | a lone surrogate         |
      | nested a thousand deep   |

  Scenario: Whole numbers of a question that browsers would round are shown as text
    When a question with large numbers is shown
    Then those that are rounded are text, and the one that is exact is a number
