Feature: An agent's output is shared fairly, loses nothing, and ends

  Each claim is made of the output queue and, as a control that must fail, of a naive one beside it.

  # -- fairness ----------------------------------------------------------------------------------

  Scenario Outline: <consumers> equal consumers of <the queue> on one loop end within one item of each other
    Given <the queue>
    When <consumers> consumers share out 1000 items on one loop
    Then all items were got, each once
    And no share is larger than another by more than one

    Examples:
      | the queue       | consumers |
      | an output queue | 2         |
      | an output queue | 3         |
      | an output queue | 50        |

    @tdd_expected_fail
    Examples: naive: the first consumer takes everything
      | the queue        | consumers |
      | an asyncio.Queue | 2         |
      | an asyncio.Queue | 3         |
      | an asyncio.Queue | 50        |

  Scenario Outline: <consumers> equal consumers on <loops> loops end within one item of each other
    Given an output queue
    When <consumers> consumers share out 1000 items on <loops> loops
    Then all items were got, each once
    And no share is larger than another by more than one

    Examples:
      | consumers | loops |
      | 2         | 2     |
      | 3         | 3     |
      | 50        | 5     |
      | 50        | 50    |

  Scenario Outline: No consumer is served twice by <the queue> while another loop is about to request again
    Given <the queue>
    When two consumers on two loops have had one item each, and one of them asks again
    Then it is not served before the other has asked and been served

    Examples:
      | the queue       |
      | an output queue |

    @tdd_expected_fail
    Examples: naive: the loop that is quicker to wake up takes it all
      | the queue                             |
      | a queue that serves the first request |

  Scenario Outline: A new consumer of <the queue> is served next, though another one empties it without a pause
    Given <the queue>
    When a consumer comes while another is taking 1000 items
    Then it was served before the other had 2 more

    Examples:
      | the queue       |
      | an output queue |

    @tdd_expected_fail
    Examples: naive: it gets what is left, which is nothing
      | the queue        |
      | an asyncio.Queue |

  Scenario Outline: Emptying <the queue> does not starve the other tasks of the loop
    Given <the queue>
    When 100 items are got in a row beside a task that counts its turns
    Then that task has had 100 turns or more

    Examples:
      | the queue       |
      | an output queue |

    @tdd_expected_fail
    Examples: naive: a get of what is there never waits
      | the queue        |
      | an asyncio.Queue |

  Scenario: A consumer that stops costs the others one fairness timeout, and no more
    Given turns with a fairness timeout of 1 second, by a clock of our own
    And two who were served, and were quick to ask again
    When one of them asks on, and the other does not
    Then it waits until 1 second after the other was served
    And from then on it waits for no consumer

  Scenario: A consumer that was slow is waited for again once it has been quick
    Given turns with a fairness timeout of 1 second, by a clock of our own
    And two who were served, and were quick to ask again
    When one comes back after 3 seconds, and then after no time
    Then it is not waited for after the first, and is after the second

  Scenario: A stream of new consumers starves no other
    Given turns with a fairness timeout of 1 second, by a clock of our own
    When one asks again and again, and before each of its turns 3 come new
    Then it has its turn after those 3 at the latest, each time

  Scenario Outline: A consumer that <is gone> does not delay the others
    Given an output queue
    When two consumers had an item each, and one of them <is gone>
    Then the other gets the next two without a wait

    Examples:
      | is gone                     |
      | has ended                   |
      | was a stream that is closed |
      | was a stream that is dropped |
      | was on a loop that is closed |

  Scenario: Each get of a consumer may be in a task of its own
    Given an output queue
    When 1000 items are each got by a task of its own, made for it
    Then all items were got, each once
    And hardly any of those tasks is remembered

  Scenario: Two tasks that read one stream are one consumer
    Given an output queue
    When two tasks read one stream, and one task another, until 900 items are out
    Then each stream has given 450, within one

  # -- the end -----------------------------------------------------------------------------------

  Scenario Outline: The end of the run ends every consumer that waits for <the queue>
    Given <the queue>
    When the run ends while 3 consumers wait
    Then each of them has ended

    Examples:
      | the queue       |
      | an output queue |

    @tdd_expected_fail
    Examples: naive: they have looked whether it is over, and wait for good
      | the queue                   |
      | a queue that is looked at |

  Scenario Outline: The end of the run ends a consumer that waits <how>
    Given an output queue
    When the run ends while a consumer waits <how>
    Then that consumer has ended, with OutputEndedError or the end of its loop

    Examples:
      | how                               |
      | for an item                       |
      | for an item, with a time limit    |
      | for its next turn                 |
      | in a stream                       |
      | in a stream opened before the run |
      | in a broadcast                    |
      | on a loop in another thread       |

  Scenario Outline: A run of <the queue> is over for its waiting consumers, though the next one begins at once
    Given <the queue>
    When the run ends while 3 consumers wait, and the next one begins before they look
    Then each of them has ended

    Examples:
      | the queue       |
      | an output queue |

    @tdd_expected_fail
    Examples: naive: the flag is down again when they look
      | the queue          |
      | a queue with a flag |

  Scenario: Items left at the end of the run are still served, then no consumer waits
    Given an output queue
    When 3 items are put, the run ends, and 4 are asked for
    Then 3 are got in order, and the fourth is an OutputEndedError, which is a RuntimeError

  Scenario: Before the first run getters wait; after the last one they do not, until the next begins
    Given an output queue before its first run
    Then a getter waits
    When the run begins and ends
    Then a getter is refused at once
    When the run begins
    Then a getter waits

  Scenario: A waiting consumer is not ended while an item is reserved for another, which may still release it
    Given an output queue
    When an item goes to one of two who wait, the run ends, and that one is cancelled
    Then the other has got it

  Scenario: A blocked loop keeps no consumer waiting after the end
    Given an output queue
    And a reservation is taken back soon from a loop that stands still
    When an item goes to one whose loop stands still, and the run ends while another waits
    Then the other has got it

  # -- nothing is lost ---------------------------------------------------------------------------

  Scenario Outline: An item of <the queue> is not lost with a getter that is cancelled <when>
    Given <the queue>
    When a getter is cancelled <when>
    Then the next one gets the item

    Examples:
      | the queue       | when                              |
      | an output queue | as the item is put                |
      | an output queue | just before the item is put       |
      | an output queue | before it has asked               |
      | an output queue | in its first turn, of a filled one |

    @tdd_expected_fail
    Examples: naive: the item has left the queue when it is handed over
      | the queue                   | when               |
      | a queue that hands items over | as the item is put |

  Scenario: A getter cancelled after any number of loop iterations has its item, or has not taken it
    Given an output queue
    When getters are cancelled after 0 to 20 turns each, with an item put in each of those turns
    Then all items were got, each once, or are there

  Scenario Outline: A stream of <the queue> gives what is put in the same step as the end
    Given <the queue>
    When an item is put and the run ends in one step of the loop, while a stream waits and works
    Then the stream has given all of it, and has ended

    Examples:
      | the queue       |
      | an output queue |

    @tdd_expected_fail
    Examples: naive: a look at the end, and then a get
      | the queue                   |
      | a queue that is looked at |

  Scenario Outline: <How many> seconds are enough to get an item that is there
    Given an output queue
    When 10 items are got with a time limit of <how many> seconds, and one more
    Then 10 are got in order, and the eleventh is a RunTimeoutError, which is a TimeoutError

    Examples:
      | How many | how many |
      | 0        | 0        |
      | 0.001    | 0.001    |

  Scenario: A step of a stream that timed out or was cancelled takes no item, and the stream continues
    Given an output queue
    When a stream times out, is cancelled, and is read on
    Then it gives every item, and ends with the run

  Scenario: The collector may close a getter while a broadcast of its queue is read
    Given an output queue
    When a getter is closed in a thread that reads a broadcast, while another thread puts
    Then both go on

  Scenario: A closed loop loses no item: the next getter receives it, and waiting putters are dropped
    Given a bounded output queue
    When a loop is closed on which one waits for an item, and another waits to put
    Then another consumer gets the item that is put, and putters have room

  Scenario Outline: Random puts, gets, timeouts, cancellations and closed loops lose no item: seed <seed>
    When threads and loops put, get, give up, are cancelled and closed, as chance <seed> will have it
    Then what was put was got, each once, and nothing is left
    And observers and broadcasts have all of it, in the same order

    Examples:
      | seed |
      | 1    |
      | 2    |
      | 3    |
      | 4    |
      | 5    |
      | 6    |

  # -- bounded -----------------------------------------------------------------------------------

  Scenario: A bounded queue takes no more than it holds
    Given a bounded output queue
    When it is filled, and one more is put without waiting
    Then that is an asyncio.QueueFull, and it is full and as it was

  Scenario: Waiting putters are served in order, as there is room
    Given a bounded output queue
    When 5 tasks wait to put, and one of them is cancelled, while the items are got
    Then the items came in order, without that of the cancelled one

  Scenario: A thread that takes makes room for a task that waits to put on a loop
    Given a bounded output queue
    When a task on another loop waits to put, and an item is taken
    Then that task has put

  Scenario: A blocked loop does not keep a bounded queue full
    Given a bounded output queue
    And a reservation is taken back soon from a loop that stands still
    When two items go to two whose loop stands still, as one more waits to get, and one to put
    Then both have done what they waited for

  # -- streams -----------------------------------------------------------------------------------

  Scenario: Streams that compete share the items out; those that broadcast get every one
    Given an output queue
    When 2 streams compete for 100 items, and 3 broadcast them
    Then each competing one has had 50, and each broadcast all 100 in order

  Scenario: A broadcast has what is put after it was opened, on a queue that is bounded too
    Given a bounded output queue
    When a broadcast is opened between the first item and the second of 3, and read after the end
    Then it gives the second and the third

  Scenario Outline: A broadcast that is <over> is given nothing any more
    Given an output queue
    When a broadcast is <over>, and items are put
    Then none of them is kept for it

    Examples:
      | over    |
      | closed  |
      | dropped |

  Scenario: A stream belongs to one run
    Given an output queue
    When a stream is opened in one run, and read after the next one has begun and put
    Then it gives what the first run has put, and ends

  Scenario: Closing a stream ends the tasks that wait for its next item
    Given an output queue
    When a stream is closed while a task waits for its next item
    Then that task has come to the end of the stream

  Scenario: A stream abandoned while it waits for its next item is collected, and so is its getter
    Given an output queue
    When a task is cancelled that reads a stream
    Then no getter waits for the queue, and the next item is still in it

  # -- unread output -------------------------------------------------------------------------------

  Scenario: Unread output does not pile up: a run drops what earlier runs have left
    Given an output queue
    When 100 runs put an item each
    Then one item is there, that of the last run

  Scenario Outline: Unread output of a run is <kept> for the next one if <condition>
    Given an output queue
    When a run puts 3 items while <condition>, and the next one begins
    Then the 3 items are <kept>

    Examples:
      | kept    | condition                          |
      | kept    | a task has got one and lives       |
      | kept    | a stream is open, and not yet read |
      | kept    | a thread has asked without waiting |
      | dropped | a task has got one and has ended   |
      | dropped | a stream was opened and is closed  |
      | dropped | a stream was opened and is dropped |
      | dropped | a broadcast is open                |
      | dropped | an observer is subscribed          |

  Scenario: Dropped items make room
    Given a bounded output queue
    When it is filled in a run, a task waits to put, and the next run begins
    Then that task has put

  Scenario: An agent without consumers keeps answering, its bounded output full or not
    Given an agent with room for 1 output
    When it answers 5 requests
    Then it has given 5 answers, and holds the last one

  # -- an agent ----------------------------------------------------------------------------------

  Scenario: An agent's stream gives what its steps put out, until its run ends
    Given an agent whose steps put out 1, 2, 3
    When it runs while a stream, a broadcast and an observer listen
    Then each of them has 1, 2, 3, and the streams have ended

  Scenario Outline: The stream of an agent ends also if its run ends by <what>
    Given an agent whose steps put out 1, 2, 3 and then meet <what>
    When it runs while a stream, a broadcast and an observer listen
    Then each of them has 1, 2, 3, and the streams have ended

    Examples:
      | what              |
      | an error          |
      | its time limit    |
      | being cancelled   |

  # -- observers ---------------------------------------------------------------------------------

  Scenario: Observers receive every item in the order of the queue, one at a time
    Given an output queue
    And 2 observers of the output
    When 4 threads put 200 items each
    Then each observer was told of all of them in the order in which they are got, one at a time

  Scenario: An observer may put, and one that raises affects no other
    Given an output queue
    And an observer of the output that raises, one that answers each item below 3 with the next, and another
    When item 0 is put
    Then the last one was told 0, 1, 2, 3, and so much is there

  # -- what is refused ---------------------------------------------------------------------------

  Scenario Outline: An output queue with <argument> is refused
    When an output queue is made with <argument>
    Then InvalidArgumentError is raised, a subclass of ValueError

    Examples:
      | argument             |
      | maxsize=-1           |
      | maxsize=1.5          |
      | maxsize=True         |
      | maxsize=None         |
      | fairness_timeout=-1  |
      | fairness_timeout=nan |
      | fairness_timeout=inf |
      | fairness_timeout='1' |

  Scenario Outline: A time limit of <value> is refused at the call
    Given an output queue
    When an item is asked for, and a stream opened, with a time limit of <value>
    Then InvalidArgumentError is raised by each of the 2 calls

    Examples:
      | value  |
      | -1     |
      | nan    |
      | inf    |
      | '1'    |
      | True   |

  # -- interruptions -----------------------------------------------------------------------------

  Scenario Outline: A <entering> may enter during <inside> an output queue
    Given an output queue that its own thread may enter
    When a <entering> comes in at each place of <inside>, and uses all of it
    Then each time all was as it should be, at more than 10 places

    Examples:
      | entering       | inside                      |
      | signal handler | putting                     |
      | signal handler | waiting to put              |
      | signal handler | getting                     |
      | signal handler | giving up                   |
      | signal handler | being cancelled             |
      | signal handler | taking                      |
      | signal handler | opening and closing streams |
      | signal handler | beginning a run             |
      | signal handler | ending a run                |
      | signal handler | subscribing                 |
      | finalizer      | putting                     |
      | finalizer      | waiting to put              |
      | finalizer      | getting                     |
      | finalizer      | giving up                   |
      | finalizer      | being cancelled             |
      | finalizer      | taking                      |
      | finalizer      | opening and closing streams |
      | finalizer      | beginning a run             |
      | finalizer      | ending a run                |
      | finalizer      | subscribing                 |

  Scenario Outline: A <entering> may drop a request as its reservation is given, or taken back
    Given an output queue that its own thread may enter
    And each reservation is taken back as soon as it is looked at
    When a <entering> comes in at each place of waiting to put, and uses all of it
    Then each time all was as it should be, at more than 10 places

    Examples:
      | entering       |
      | signal handler |
      | finalizer      |

  @tdd_expected_fail
  Scenario: A signal handler may put into a queue that is under a plain lock
    Given a queue under a plain lock that its own thread may enter
    When a signal handler comes in at each place of putting, and puts
    Then each time all was as it should be, at more than 0 places
