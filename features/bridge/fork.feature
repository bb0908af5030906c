Feature: In a forked child, a bridge of the parent raises at once and never hangs

  A child has the one thread that forked, and copies of everything else: locks that are
  never released, a loop that claims to be running, futures that are never resolved.

  Scenario: Every method of the parent's bridge raises WrongProcessError at once in a forked child
    When children of one program each make one of these calls
      | call                                                            |
      | bridge.create_future_task(answer, 1)                            |
      | outcome_of(reactivex.just(1).pipe(bridge.invoke(answer)))       |
      | fed()                                                           |
      | futures[0].result()                                             |
      | raised(futures[-1].exception())                                 |
      | asyncio.run(awaited(futures[0]))                                |
      | asyncio.run(read(reader))                                       |
      | asyncio.run(read(bridge.astream(answer, 1)))                    |
      | asyncio.run(bridge.submit(answer, 1))                           |
      | outcome_of(reactivex.just(1).pipe(bridge.stream(answer)))       |
      | concurrent.futures.wait(futures[:2]).done.pop().result()        |
      | next(concurrent.futures.as_completed(futures)).result()         |
    Then each child prints "WrongProcessError: the bridge rxlanggraph-1 belongs to the process that this one was forked from", and "make a new one here: RxPyLangGraphBridge()"

  @tdd_expected_fail
  Scenario: Plain asyncio: a coroutine that a forked child hands to its parent's loop is refused
    When this program forks: plain asyncio
    Then its child does not print "True, set()"

  Scenario: A forked child exits without a hang or a message, whatever it did last with its parent's bridge
    When children of one program end after one of these calls each
      | call                             |
      | os._exit(0)                      |
      | sys.exit()                       |
      | bridge.close()                   |
      | bridge.__exit__(None, None, None) |
      | asyncio.run(bridge.aclose())     |
      | bridge.cleanup_tasks()           |
      | asyncio.run(bridge.cleanup_tasks_async()) |
      | bridge.registry.wait_idle()      |
      | bridge.statistics()              |
      | futures[0].cancel()              |
      | asyncio.run(reader.aclose())     |
      | globals().pop("reader")          |
      | futures.clear()                  |
      | globals().pop("bridge")          |
    Then each ends by itself with status 0, and prints nothing

  Scenario Outline: A forked child exits without a hang or a message: <what>
    When this program forks: <what>
    Then it ends by itself, and prints "the child's status is 0"

    Examples:
      | what                            |
      | leaving the block of the bridge |
      | disposing a stream              |
      | a thread that blocks            |
      | multiprocessing                 |
      | a loop that was lent            |

  Scenario: Callbacks of the parent's runs are called in the parent, and not in the child
    When this program forks: callbacks
    Then it ends by itself, and prints "0 called back, 0 in flight" and then "20 called back, 0 in flight"

  Scenario: A new bridge works in a forked child
    When this program forks: a new one
    Then it ends by itself, and prints "[0, 1, 2]"

  Scenario: A bridge that was not used before the fork works in the child, and in the parent
    When this program forks: not used before
    Then it ends by itself, and prints "1 1"

  Scenario: A node may fork, in a worker thread and on the loop
    When this program forks: in a node
    Then it ends by itself, and prints "WrongProcessError WrongProcessError"

  Scenario: A child that closes its copy of the bridge does not affect the parent's runs
    When this program forks: the parent goes on
    Then it ends by itself, and prints "9900"

  Scenario: A registry is empty in a forked child, and works
    When this program forks: a registry
    Then it ends by itself, and prints "(1, False, 1, True) and 3"

  Scenario: An actor of the parent is refused in a forked child; its last state can be read
    When this program forks: an actor
    Then its child prints "WrongProcessError: rxlanggraph-actor-1 belongs", and "make an actor of its own here"

  Scenario: A pending reply of the parent's actor raises in a forked child
    When this program forks: an answer of an actor
    Then its child prints "WrongProcessError: rxlanggraph-actor-1 belongs", and "make an actor of its own here"

  Scenario: A shared state that the parent opened is refused in a forked child, and opened there anew
    When this program forks: a shared state
    Then its child prints "WrongProcessError: this state belongs", and "open the same URL here"
    And it ends by itself, and prints "opened anew" and then "the parent has 1"

  # SQLite takes locks of the process that it was forked from for its own.
  Scenario Outline: An SQLite file that <which> opens anew can be used after the parent has closed it
    When this program forks: <what>
    Then it ends by itself, and prints "counted to 3" and then "the next one counts to 4"

    Examples:
      | which                | what                                 |
      | a child              | an SQLite file                       |
      | the child of a child | an SQLite file, over two generations |

  Scenario: An SQLite file is refused in a child that was forked in the middle of a call on it
    When this program forks: an SQLite file, in a call
    Then its child prints "WrongProcessError: the SQLite file", and "multiprocessing's method 'spawn'"

  Scenario: An agent forked in the middle of a run, or its pool, answers in the child
    When this program forks: an agent
    Then it ends by itself, and prints "echo: two" and then "echo: three"

  Scenario: A conversation whose memories are looked up at the fork goes on in the child
    When this program forks: a conversation
    Then it ends by itself, and prints "True" and then "True"

  Scenario: Twenty-five forks while four threads submit, at a switch interval of 1 us: all children answer
    When this program forks: under load
    Then it ends by itself, and prints "25 {'answered 1'}"

  Scenario: A fork between any two lines of a submission leaves a child that gets the error, and no hang
    When this program forks: between two lines
    Then it ends by itself, and prints "True {'WrongProcessError'}"

  Scenario: A child that continues the submission in which it was forked gets the error too
    When this program forks: within a submission
    Then it ends by itself, and prints "True {'WrongProcessError'}"
