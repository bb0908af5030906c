Feature: The thread of an agent's graph has the messages of the agent's memory

  Scenario Outline: Messages that other code adds to the memory <when> reach the graph with the next request
    Given an agent over a graph with a checkpointer, which shows what its model sees
    When a caller asks "one", <role> adds "by the way" <when>, and then asks "two"
    Then the model sees "by the way" once, before "two", and so does its thread

    Examples:
      | role          | when                 |
      | the user      | during that run      |
      | the user      | after that run       |
      | the assistant | after that run       |
      | the assistant | during that run      |

  Scenario: Added messages reach the graph also if the first run after them fails
    Given an agent over a graph with a checkpointer, which shows what its model sees
    When a caller asks "one", the user adds "by the way", the caller asks in vain, and then "two"
    Then the model sees "by the way" once, before "two", and so does its thread

  Scenario: Added messages reach the graph of an agent that another process has created again
    Given a pool of agents over a graph with a checkpointer, which keeps in the same checkpointer
    When a caller asks "one", the user adds "by the way" during that run, and then asks another pool "two"
    Then the model sees "by the way" once, before "two", and so does its thread

  Scenario: Messages that a graph has removed from its own thread are not sent to it again
    Given an agent over a graph that takes each request out once it has answered
    When a caller asks "one", "two" and "three"
    Then the model sees each request once

  Scenario Outline: A memory that is <changed> restarts the thread with its contents
    Given an agent over a graph with a checkpointer, which shows what its model sees
    When a caller asks "one" and "two", its memory is <changed>, and the caller asks "three"
    Then the model sees <seen>, and so does its thread
    And once more, when a run has failed in between

    Examples:
      | changed            | seen          |
      | cleared            | three         |
      | loaded with "else" | else, three   |
      | another one        | three         |

  Scenario Outline: A run that clears the memory restarts the thread, also for another agent: <how>
    Given a pool of one agent over a graph with a checkpointer, which clears its memory <how>
    When "one" is asked, "clear it" once others had the place, and "two" once they had it again
    Then the model sees two, and so does its thread

    Examples:
      | how                           |
      | without asking the graph      |
      | once the graph has answered   |

  Scenario: A run that clears the memory, and then cannot be saved, leaves memory and thread consistent
    Given a pool of one agent over a graph with a checkpointer, which clears its memory once the graph has answered
    When "one" is asked, "clear it" while the store fails, and "two"
    Then the model sees two, and so does its thread

  Scenario Outline: A retried request is in the thread once: <retried>
    Given an agent over a graph with a checkpointer, whose model fails at first
    When a caller asks by means of <retried>
    Then its memory and its thread have the request once, and its answer

    Examples:
      | retried                                |
      | a bridge with retry                    |
      | a caller who tries the same message again |

  Scenario: A message that is sent again after its answer is answered again
    Given an agent over a graph with a checkpointer, which shows what its model sees
    When a caller asks the very same message twice
    Then the model was shown it at the end both times, and the memory has two turns

  Scenario: A message that is sent again is answered again also by an agent that has forgotten it
    Given an agent over a graph with a checkpointer, which shows what its model sees
    When a caller asks it, and then another agent over that graph, the very same message
    Then the model was shown it at the end both times, and the thread has two turns

  Scenario: A caller that sends the whole conversation each time has each message in it once
    Given an agent over a graph with a checkpointer, which shows what its model sees
    When a caller asks with all that was said before, three times
    Then its memory and its thread have three turns, and the model saw nothing twice

  Scenario: A system message that each agent of a pool begins with is in the thread once
    Given a pool whose agents begin with a system message, over a graph with a checkpointer
    When a thread is asked by one pool, and then by another that knows the graph alone
    Then the model is shown the system message once, at the beginning
