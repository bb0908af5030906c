Feature: A graph that asks waits for an answer to that question, and nothing else comes to its thread

  # -- plain LangGraph ---------------------------------------------------------------------------

  @tdd_expected_fail
  Scenario: Plain LangGraph: of two answers at once, both are taken
    Given a thread of a graph that asks "first?", by plain LangGraph
    When it is answered with "yes" and with "no" at once, by plain LangGraph
    Then one of the two was taken, and the other was refused

  @tdd_expected_fail
  Scenario: Plain LangGraph: new input drops the question without a word
    Given a thread of a graph that asks "first?", by plain LangGraph
    When new input comes to it, by plain LangGraph
    Then the graph waits for an answer to the same question

  @tdd_expected_fail
  Scenario: Plain LangGraph: a used answer answers a later question
    Given a thread of a graph that asks "first?", by plain LangGraph
    When it is answered with "yes" and then continued with None, by plain LangGraph
    Then the graph waits for an answer to "second?"

  # -- the result --------------------------------------------------------------------------------

  Scenario Outline: A graph that stops in <place> ends as interrupted, through <entry>, saved <saver>
    Given an open bridge on its own loop
    And a graph that stops in <place>, saved <saver>
    When it is started on a thread through <entry>
    Then its result is interrupted without an error, and asks <questions>
    And its content is what "ainvoke" gives
    When all of that is answered with "yes" through <entry>
    Then its result is ok, and it has said <said>

    Examples:
      | place                      | entry              | saver     | questions        | said                   |
      | one node                   | create_future_task | in memory | "first?"         | "first? yes"           |
      | one node                   | create_future_task | in SQLite | "first?"         | "first? yes"           |
      | one node                   | invoke             | in memory | "first?"         | "first? yes"           |
      | one node                   | stream             | in memory | "first?"         | "first? yes"           |
      | one node                   | astream            | in memory | "first?"         | "first? yes"           |
      | a subgraph                 | create_future_task | in memory | "first?"         | "first? yes"           |
      | a subgraph                 | invoke             | in SQLite | "first?"         | "first? yes"           |
      | a subgraph                 | stream             | in memory | "first?"         | "first? yes"           |
      | nodes side by side         | create_future_task | in memory | "left?, right?"  | "left? yes, right? yes" |
      | nodes side by side         | invoke             | in SQLite | "left?, right?"  | "left? yes, right? yes" |
      | nodes side by side         | astream            | in memory | "left?, right?"  | "left? yes, right? yes" |
      | the functional API         | create_future_task | in memory | "first?"         | "first? yes"           |
      | the functional API         | astream            | in SQLite | "first?"         | "first? yes"           |
      | a breakpoint before a node | create_future_task | in memory | ""               | "done"                 |
      | a breakpoint before a node | invoke             | in SQLite | ""               | "done"                 |
      | a breakpoint before a node | stream             | in memory | ""               | "done"                 |
      | a breakpoint before a node | astream            | in memory | ""               | "done"                 |
      | a breakpoint after a node  | create_future_task | in memory | ""               | "done, done"           |
      | a breakpoint after a node  | astream            | in SQLite | ""               | "done, done"           |
      | a breakpoint in a subgraph | create_future_task | in memory | ""               | "done"                 |
      | a breakpoint in a subgraph | invoke             | in memory | ""               | "done"                 |

  Scenario Outline: A graph that is bound to stream_mode=<mode> asks as any other, through <entry>
    Given an open bridge on its own loop
    And a graph that stops in nodes side by side, bound to stream_mode=<mode>
    When it is started on a thread through <entry>
    Then its result is interrupted without an error, and asks "left?, right?"

    Examples:
      | mode                  | entry              |
      | "updates"             | create_future_task |
      | "values"              | create_future_task |
      | ["values", "updates"] | invoke             |
      | "updates"             | stream             |

  Scenario Outline: A breakpoint that is set <how> stops the run as interrupted, and None continues
    Given an open bridge on its own loop
    And a graph that says "done", with a breakpoint set <how>
    When it is started on a thread, and continued with None
    Then the first result is interrupted, without questions, and the second is ok

    Examples:
      | how                              |
      | as interrupt_before of the call  |
      | as interrupt_before of the call, with retry=2 |
      | as interrupt_after="*" of the call |
      | by bind(interrupt_before=)       |

  Scenario Outline: What <wrapper> does for a failed call, it does for a graph with a breakpoint
    Given an open bridge on its own loop
    And a graph that fails once behind its breakpoint, and says "done", in <wrapper>
    When it is started on a thread, and continued with None
    Then the first result is interrupted, without questions, and the second is ok

    Examples:
      | wrapper        |
      | with_retry     |
      | with_fallbacks |

  Scenario: A retry policy about results sees what the graph returned at its breakpoint
    Given an open bridge on its own loop
    And a graph that says "done", with a breakpoint set as interrupt_before of the call
    When it is started with a policy that looks at results
    Then the policy has seen what "ainvoke" gives

  Scenario: A run that asks has not failed, whatever the error policy
    Given an open bridge on its own loop
    And a graph that stops in one node, saved in memory
    When it is started through invoke with errors="raise", "emit" and "skip"
    Then each stream has emitted the interrupted result, and completed
    And the registry counts 3 succeeded

  Scenario: A graph without a checkpointer asks too
    Given an open bridge on its own loop
    And a graph that stops in one node, not saved
    When it is started on a thread through create_future_task
    Then its result is interrupted without an error, and asks "first?"

  Scenario: An interrupted result is pickled, copied and replaced with its questions
    Given an open bridge on its own loop
    And a graph that stops in one node, saved in memory
    When it is started on a thread through create_future_task
    Then a pickle of its result, and a replaced copy, have its questions

  # -- answers -----------------------------------------------------------------------------------

  Scenario Outline: Of <count> answers at once, given as <form>, exactly one is taken, saved <saver>
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved <saver>
    When it is answered <count> times at once, as <form>
    Then one answer was taken, and each other was rejected with a StaleResumeError
    And the graph waits for an answer to "second?", and none of the others was kept for it

    Examples:
      | count | form                       | saver     |
      | 2     | Command(resume=value)      | in memory |
      | 2     | Command(resume={id: value}) | in memory |
      | 2     | reply                      | in memory |
      | 2     | Command(resume=value)      | in SQLite |
      | 2     | reply                      | in SQLite |
      | 8     | a mixture of these         | in memory |
      | 50    | Command(resume=value)      | in memory |
      | 50    | reply                      | in SQLite |

  Scenario: Of answers that 8 threads give at once, exactly one is taken
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in SQLite
    When 8 threads reply to it at once
    Then one answer was taken, and each other was rejected with a StaleResumeError

  Scenario Outline: A used answer, given as <form>, never answers a later question
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    When the answer "yes" is given as <form>, and then <what comes>
    Then the graph waits for an answer to "second?"

    Examples:
      | form                        | what comes                      |
      | Command(resume=value)       | None                            |
      | Command(resume={id: value}) | None                            |
      | Command(resume={id: value}) | the same answer again           |
      | reply                       | the same answer again           |
      | reply                       | the same answer again, retried  |
      | Command(resume=value) by plain LangGraph | None               |

  Scenario: An answer that plain LangGraph has left on the thread is not used for a third question
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in SQLite
    When the answer "yes" is given as Command(resume=value) by plain LangGraph, and then a reply to "second?"
    Then the graph waits for an answer to "third?"

  Scenario: An answer that was given before its question answers nothing
    Given an open bridge on its own loop
    And a run that has not asked its question yet
    When an answer without an id is given, and then the run asks
    Then the answer was rejected with a StaleResumeError, and the question is still answered by a reply

  Scenario: A message that is refused does not spoil an answer that waits behind it
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    When new input comes to it, and an answer without an id right behind that
    Then the input was rejected with a PendingInterruptError, and the answer was taken

  Scenario: Of several questions each is answered by a reply of its own
    Given an open bridge on its own loop
    And a graph that stops in nodes side by side, saved in memory
    When it is started on a thread, and its questions are answered one by one
    Then after the first reply it asks the other question alone, and after the second it is done

  Scenario: An answer without an id, where several are asked, is LangGraph's error, and changes nothing
    Given an open bridge on its own loop
    And a graph that stops in nodes side by side, saved in memory
    When it is started on a thread, and answered without an id
    Then the answer is an error that asks for the interrupt id, and both questions are still pending

  Scenario: An answer without an id whose source is one of several results means its question
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    When a message with the first result as its source answers twice
    Then one answer was taken, and each other was rejected with a StaleResumeError

  Scenario Outline: An answer whose run has failed is replaced by the next one to that question, <where>
    Given an open bridge on its own loop
    And a graph <where>, saved <saver>, that fails once its first question of two is answered
    When its first question is answered with "yes", and after that has failed with "no"
    Then it asks the second question, and has got "no" for the first alone

    Examples:
      | where                     | saver     |
      | with a node               | in memory |
      | with a node               | in SQLite |
      | with a subgraph           | in memory |
      | with a subgraph in one    | in SQLite |
      | with a node, retried once | in memory |

  Scenario Outline: An answer where <state> is refused, and leaves nothing on the thread
    Given an open bridge on its own loop
    And a thread of a graph where <state>
    When it is answered with Command(resume="yes")
    Then the answer was rejected with a StaleResumeError, and the thread has no answer

    Examples:
      | state                       |
      | nothing was ever said       |
      | the graph has ended         |
      | the graph is at a breakpoint |

  Scenario: reply refuses what it cannot answer, with the remedy
    Given an open bridge on its own loop
    And a graph that stops in nodes side by side, saved in memory
    When it is started on a thread through create_future_task
    Then reply without an id, with an unknown id, and on a message that asks nothing are refused

  # -- new input ---------------------------------------------------------------------------------

  Scenario Outline: New input <content> on a thread that waits is <outcome> with on_pending=<policy>, by <entry>
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved <saver>
    When <content> comes to it with on_pending=<policy>, by <entry>
    Then it is <outcome>, and the question is <question>

    Examples:
      | content         | policy  | entry              | saver     | outcome     | question |
      | a dictionary    | reject  | create_future_task | in memory | rejected    | pending  |
      | a dictionary    | reject  | invoke             | in SQLite | rejected    | pending  |
      | a dictionary    | reject  | stream             | in memory | rejected    | pending  |
      | a dictionary    | reject  | astream            | in memory | rejected    | pending  |
      | Command(update) | reject  | create_future_task | in memory | rejected    | pending  |
      | a dictionary    | discard | create_future_task | in memory | interrupted | gone     |
      | a dictionary    | discard | invoke             | in SQLite | interrupted | gone     |
      | a dictionary    | discard | stream             | in memory | interrupted | gone     |
      | a dictionary    | discard | astream            | in memory | interrupted | gone     |
      | None            | reject  | create_future_task | in memory | interrupted | pending  |
      | None            | discard | create_future_task | in memory | interrupted | pending  |

  Scenario Outline: New input that goes back to an earlier checkpoint, named by <place>, is not refused
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    When new input goes back to the checkpoint before the question, named by <place>
    Then the graph asks anew, where it was refused without that

    Examples:
      | place                   |
      | the message's config    |
      | the graph's with_config |

  Scenario Outline: A refused message <does> a stream with errors="<policy>"
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    When new input, and then a reply, go to it through invoke with errors="<policy>"
    Then the stream <got>

    Examples:
      | policy | does         | got                                        |
      | raise  | ends         | ends with a PendingInterruptError          |
      | emit   | is shown by  | emits rejected, interrupted, and completes |
      | skip   | is logged by | emits interrupted, and completes           |

  Scenario: Refused input is not tried again, whatever the retry policy
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    When new input comes to it with a policy that retries everything
    Then it was tried once, and the future raises a PendingInterruptError that names the question

  Scenario: An unknown policy is refused
    Given an open bridge on its own loop
    When a message is sent with on_pending="ask"
    Then InvalidArgumentError is raised, which says "on_pending must be 'reject' or 'discard'"

  # -- random histories --------------------------------------------------------------------------

  @once @unmeasured
  Scenario Outline: Random input and answers on two threads go as in the model, with <questions>
    Then 40 random histories of 30 steps go as in the model of a graph that asks: <questions>, <bound>

    Examples:
      | questions                                              | bound             |
      | questions=("first?",), side_by_side=False              | max_concurrency=4 |
      | questions=("first?", "second?"), side_by_side=False    | max_concurrency=1 |
      | questions=("left?", "right?"), side_by_side=True       | max_concurrency=4 |

  @once @unmeasured
  Scenario Outline: Random input and answers show that <fault>
    Given a bridge in which <fault>
    Then one of 100 random histories of 30 steps goes otherwise than in the model of a graph that asks: questions=("first?", "second?"), side_by_side=False, max_concurrency=4

    Examples:
      | fault                                |
      | an answer is taken whatever is asked |
      | an answer may be overtaken           |
      | new input drops a question           |
      | an expired question stays            |

  # -- what it costs -----------------------------------------------------------------------------

  Scenario Outline: <message> reads the latest checkpoint <reads> more often than LangGraph alone
    Given an open bridge on its own loop
    And a graph that does not ask, whose saver counts
    When <message> is sent, and "ainvoke" does the same
    Then the bridge has read the latest checkpoint <reads> more often

    Examples:
      | message                                   | reads   |
      | a dictionary                              | 1 times |
      | a dictionary with on_pending="discard"    | 0 times |

  Scenario: If the saver fails when the pending question is read, the attempt fails, and a retry recovers
    Given an open bridge on its own loop
    And a graph that does not ask, whose saver counts
    When a message is sent while the saver fails once, without a retry and with one
    Then the first is an error, and the second is ok

  Scenario: A message can be cancelled, and its time runs out, while its thread is read
    Given an open bridge on its own loop
    And a graph that does not ask, whose saver hangs
    When a message is cancelled, and another times out, while their threads are read
    Then both have ended so, and the registry is idle

  Scenario: Answers that wait leave nothing behind, whether they are taken, refused or cancelled
    Given an open bridge on its own loop
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    When 100 answers without an id are given, and every other one is cancelled at once
    Then the bridge remembers no answer

  # -- the list of questions ---------------------------------------------------------------------

  Scenario Outline: The pending questions of all threads are listed, and answered from the list, saved <saver>
    Given an open bridge on its own loop
    And threads that wait, that have ended, and that stopped at a breakpoint, saved <saver>
    When the pending questions are listed
    Then those of the threads that wait are there, the oldest first, with their ages
    And an answer made from the list is taken, and that question is listed no more

    Examples:
      | saver     |
      | in memory |
      | in SQLite |

  Scenario: A list of one thread's questions, and lists that are refused
    Given an open bridge on its own loop
    And threads that wait, that have ended, and that stopped at a breakpoint, saved in memory
    Then the list of one thread has its questions alone
    And a list is refused for a graph without a checkpointer, a thread that is not a string, and a closed bridge

  Scenario: Questions are listed while every place for waiting messages is taken
    Given an open bridge on its own loop with max_concurrency=2, max_pending=1
    And a thread on which a graph asks "first?", "second?" and "third?" in turn, saved in memory
    And a run that waits, and a message that waits behind it on its thread
    Then the pending questions are listed, on the loop of the bridge too

  Scenario: Questions survive a restart: another process asks, and this one lists them and answers
    Given an open bridge on its own loop
    When another process asks a question on a thread in SQLite, and ends
    Then the question is listed, and a reply to it is taken
    And a second reply to it is rejected with a StaleResumeError

  Scenario Outline: Questions that are too old are dropped, saved <saver>
    Given an open bridge on its own loop
    And threads that wait, that have ended, and that stopped at a breakpoint, saved <saver>
    When questions expire that are older than an hour, and then all
    Then the first time none is dropped, and the second time all are, and none is listed
    And an answer to a dropped question is rejected, and its thread takes new input, with its state

    Examples:
      | saver     |
      | in memory |
      | in SQLite |

  Scenario: What the other nodes of a step have returned is kept when its question is dropped
    Given an open bridge on its own loop
    And a thread on which one node has ended, and another beside it asks
    When its question expires
    Then the thread has what the first node returned

  Scenario: The questions of another graph with the same checkpointer are not dropped
    Given an open bridge on its own loop
    And two graphs with different states that share a checkpointer, and ask
    When the questions of the first graph expire
    Then the question of the second graph is pending, and its thread has its state

  Scenario: A question expires after the run that is under way on its thread, not beside it
    Given an open bridge on its own loop
    And a run that works on an answer
    When its thread's questions expire, and then the run ends
    Then no question was dropped, and the answer was taken
