Feature: No run, message or error is kept longer than needed

  Where it says that something is freed, the cyclic collector is off: it was freed by its last owner.

  Scenario: A result that is fed back knows its source, but not its source's source
    Given an open bridge on its own loop
    When 200 results of an async function are each fed back to it
    Then the last one's source is the message it answers, without a source of its own
    And it is pickled in less than 1000 bytes

  Scenario: A chain of twenty thousand results keeps two messages
    When 20000 results are made, each with the one before as its source
    Then 2 messages are left, and the last one can be pickled

  Scenario: The source of a result is the very message that was sent
    Given an open bridge on its own loop
    When one message goes to an async function
    Then its result's source is that very message

  Scenario: A source that is not a message is refused
    When a result of "hello" is made
    Then InvalidTypeError is raised, which says "source must be a StreamMessage or None, not 'hello'"

  @counted_references
  Scenario Outline: An idle bridge keeps nothing of <kind> that it ran last
    Given an open bridge on its own loop
    When the last run of "<kind>" succeeds, with no options
    And the last run of "<kind>" succeeds, with "timeout=60"
    Then nothing is kept of it

    Examples:
      | kind                                |
      | an async function                   |
      | an async function that ends at once |
      | a sync function                     |
      | an async node                       |
      | a sync node                         |

  @counted_references
  Scenario Outline: Nothing is kept of a failed run of <kind>, whatever the policies
    Given an open bridge on its own loop
    When the last run of "<kind>" fails, with no options
    And the last run of "<kind>" fails, with "timeout=60"
    And the last run of "<kind>" fails, with "retry=fast"
    And the last run of "<kind>" fails, with "timeout=60, retry=fast"
    And the last run of "<kind>" fails, with "multitask_strategy='interrupt'"
    And the last result of "<kind>" fails, with errors="raise"
    And the last result of "<kind>" fails, with errors="emit"
    And the last result of "<kind>" fails, with errors="skip"
    Then nothing is kept of it

    Examples:
      | kind                                |
      | an async function                   |
      | an async function that ends at once |
      | a sync function                     |
      | an async node                       |
      | a sync node                         |

  Scenario Outline: Nothing is kept of a run of <kind> that was cut short
    Given an open bridge on its own loop
    When the last run of "<kind>" waits, with no options
    And the last run of "<kind>" waits, with "timeout=0.2"
    And the last run of "<kind>" waits, with "timeout=0.2, retry=fast"
    Then nothing is kept of it

    Examples:
      | kind              |
      | an async function |
      | an async node     |

  Scenario: A context that outlives its run keeps nothing of it
    Given an open bridge on its own loop
    When an async function leaves a copy of its context behind
    Then its run is freed while that copy remains

  @tdd_expected_fail
  Scenario Outline: Plain LangGraph: <kind> that failed is kept until the collector runs
    When a graph of <kind> fails without a bridge
    Then nothing is kept of it

    Examples:
      | kind          |
      | an async node |
      | a sync node   |

  Scenario: The traceback of a failed run begins with LangGraph's frames, and keeps the locals of user code
    Given an open bridge on its own loop
    When a graph fails whose node has a local of its own
    Then the traceback shows LangGraph's lines and that local, and no line of the bridge
