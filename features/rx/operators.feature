Feature: Rx's flattening operators over graphs mean what they mean in RxPY

  @once
  Scenario Outline: <ours> emits what RxPY's <theirs> emits, in every order of 3 messages and ends
    Given an open bridge on its own loop
    When 3 messages arrive and end in every order, through <ours> and RxPY's <theirs>
    Then both have emitted the same, and ended in the same way, in each of the 60 cases

    Examples:
      | ours                       | theirs                  |
      | flat_map                   | flat_map                |
      | flat_map(max_concurrent=1) | merge(max_concurrent=1) |
      | flat_map(max_concurrent=2) | merge(max_concurrent=2) |
      | concat_map                 | concat_map              |
      | switch_map                 | switch_map              |
      | exhaust_map                | exclusive               |

  Scenario: concat_map_eager, which RxPY lacks, emits in the order of the messages what ends in any
    Given an open bridge on its own loop
    When the messages "abc" arrive and end as "cab", through concat_map_eager
    Then "abc" was emitted, and "a" as soon as it had ended

  Scenario: switch_map holds for each thread by itself
    Given an open bridge on its own loop
    When the messages "ab" of one thread and "cd" of another arrive, through switch_map
    Then "bd" was emitted

  Scenario: Two subscriptions of one operator do not switch each other
    Given an open bridge on its own loop
    When the messages "a" and "b" arrive at two subscriptions of one switch_map
    Then "ab" was emitted

  Scenario Outline: A message that exhaust_map refuses has an error that says that <what> is busy
    Given an open bridge on its own loop
    When the messages "ab" <of> arrive at exhaust_map with errors="emit", and "a" ends last
    Then the error of "b" says "<what> has"

    Examples:
      | of              | what           |
      | of the thread t | the thread 't'   |
      | without threads | its subscription |

  Scenario: RxPY's switch_map begins a run beside the cleanup of the last; this one afterwards
    Given an open bridge on an adopted loop
    When 2 messages go to a graph that cleans up slowly, through switch_map
    Then the two runs never overlapped, and the last one was emitted

  Scenario Outline: <what> is refused, with the remedy
    Given an open bridge on its own loop
    When the code under test calls "<call>"
    Then InvalidTypeError is raised, which says "<words>"

    Examples:
      | what                  | call                                          | words                                          |
      | No bridge             | operators.switch_map(print, bridge)           | the first argument must be the bridge          |
      | No bridge             | operators.flat_map(None, print)               | the first argument must be the bridge          |
      | An unknown argument   | operators.exhaust_map(bridge, print, retries=1) | exhaust_map() has no argument 'retries'; it has |
      | An unknown argument   | operators.flat_map(bridge, print, max_concurrency=2) | flat_map() has no argument 'max_concurrency' |
      | An unknown argument   | operators.concat_map(bridge, print, ordered=False) | concat_map() has no argument 'ordered'       |
      | An unknown argument   | operators.concat_map_eager(bridge, print, ordered=False) | concat_map_eager() has no argument 'ordered' |

  Scenario Outline: <what> of an operator is refused
    Given an open bridge on its own loop
    When the code under test calls "<call>"
    Then InvalidArgumentError is raised, which says "<words>"

    Examples:
      | what            | call                                                                | words                                       |
      | No concurrency  | operators.flat_map(bridge, print, max_concurrent=0)                 | max_concurrent must be a whole number from 1 |
      | Another policy  | operators.switch_map(bridge, print, multitask_strategy="enqueue")   | must be 'interrupt' or 'rollback', not 'enqueue' |
      | Another policy  | operators.exhaust_map(bridge, print, multitask_strategy="interrupt") | must be 'reject', not 'interrupt'           |
