Feature: An MCP client's messages stay in its conversation: other clients have conversations of their own

  # -- one conversation per session --------------------------------------------------------------

  Scenario Outline: One client's messages <how> do not reach another through <whom>
    Given <whom>, served over MCP
    When a client says "my password is hunter2" <how>, and another asks what was said
    Then the other has heard of nothing but its own question

    Examples:
      | how                        | whom                                 |
      | in this process            | an agent with a model                |
      | in this process            | an agent with a graph                |
      | in this process            | an agent with a checkpointed graph   |
      | in this process            | an agent that reads its memory       |
      | in this process            | an agent that asks another one       |
      | in this process            | an agent that asks another in a task |
      | in this process            | a pool of agents                     |
      | in this process, as in 2025 | an agent with a model               |
      | in this process, as in 2025 | a pool of agents                    |
      | over HTTP                  | an agent with a model                |
      | over HTTP                  | an agent with a checkpointed graph   |
      | over HTTP                  | a pool of agents                     |
      | over HTTP, as in 2025      | an agent with a model                |
      | over HTTP, as in 2025      | an agent with a checkpointed graph   |
      | over HTTP, as in 2025      | a pool of agents                     |
      | over HTTP, as in 2025      | a pool over a checkpointed graph     |

    @tdd_expected_fail
    Examples: the naive way: the agent's run is the tool
      | how                        | whom                                 |
      | in this process            | an agent that was made a tool        |
      | over HTTP, as in 2025      | an agent that was made a tool        |

  Scenario Outline: A session is one conversation: <whom> remembers the same client's messages <how>
    Given <whom>, served over MCP
    When a client says "tea" and "milk" <how>, and asks what was said
    Then it was told "tea, milk" and its own question alone

    Examples:
      | how                         | whom                               |
      | in this process             | an agent with a model              |
      | in this process             | an agent with a checkpointed graph |
      | in this process             | an agent that asks another one     |
      | in this process             | a pool of agents                   |
      | in this process, as in 2025 | an agent with a model              |
      | over HTTP, as in 2025       | an agent with a model              |
      | over HTTP, as in 2025       | an agent with a checkpointed graph |
      | over HTTP, as in 2025       | a pool of agents                   |
      | over HTTP, as in 2025       | a pool over a checkpointed graph   |

  Scenario: Each conversation begins with what the agent itself remembers, and adds nothing to it
    Given an MCP server of an agent that remembers "be brief"
    When a client says "my password is hunter2" in this process, and another asks what was said
    Then it was told "be brief" and its own question alone
    And the agent itself remembers "be brief"

  Scenario: The memory of a conversation is bounded as the agent's own is
    Given an MCP server of an agent that remembers 3 messages at most
    When a client says "one" and "two" in this process, and asks what was said
    Then it was told "two" and its own question alone

  Scenario: A failed call leaves its conversation as it was
    Given an agent with a model, served over MCP
    When a client says "tea" and "fail" in this process, and asks what was said
    Then it was told "tea" and its own question alone

  Scenario Outline: With share_conversation=True, clients share a conversation with <whom>
    Given <whom>, served over MCP with one conversation for all
    When a client says "tea" <how>, and another asks what was said
    Then it was told "tea" and its own question alone

    Examples:
      | how                   | whom                               |
      | in this process       | an agent with a model              |
      | over HTTP             | an agent with a model              |
      | over HTTP             | a pool of agents                   |
      | over HTTP, as in 2025 | an agent with a checkpointed graph |

  # -- HTTP since 2026 has no sessions -----------------------------------------------------------

  Scenario Outline: Without sessions in the protocol, an answer names its conversation, and a call can continue it
    Given <whom>, served over MCP
    When a client says "tea" over HTTP, and asks in the conversation that the answer names
    Then it was told "tea" and its own question alone
    And the answers name the same conversation

    Examples:
      | whom                               |
      | an agent with a model              |
      | an agent with a checkpointed graph |
      | a pool of agents                   |

  Scenario: An unknown conversation is an error of the tool, whose text explains how to begin one
    Given an agent with a model, served over MCP
    When a client asks in a conversation that there is not
    Then the call fails with "there is no such conversation"
    And the call fails with "leave out the argument"

  Scenario: A conversation is valid only for the client that began it
    Given an agent with a model, served over MCP to two clients with names of their own
    When one client says "tea" over HTTP, and the other asks in the conversation that the answer names
    Then the call fails with "there is no such conversation"

  # -- bounded and retired -----------------------------------------------------------------------

  Scenario Outline: When a session ends <how>, nothing is left of its conversation with <whom>
    Given <whom>, served over MCP
    When a client says "tea" <how>, and leaves
    Then the server has no conversation, and nothing remembers "tea"

    Examples:
      | how                         | whom                               |
      | in this process             | an agent with a model              |
      | in this process             | an agent with a checkpointed graph |
      | in this process, as in 2025 | an agent with a model              |
      | over HTTP, as in 2025       | an agent with a model              |
      | over HTTP, as in 2025       | an agent with a checkpointed graph |
      | over HTTP, as in 2025       | a pool of agents                   |
      | over HTTP, as in 2025       | a pool over a checkpointed graph   |

  Scenario Outline: If <one> does not forget a conversation that is over, the others do
    Given agents and a pool, served over MCP, of which <one> does not forget
    When a client that has said "tea" to all of them leaves
    Then the others have forgotten, and the log tells of it

    Examples:
      | one                        |
      | a checkpointer that raises |
      | a checkpointer that hangs  |
      | a checkpointer that hangs, and is deaf |
      | a pool that raises         |

  Scenario: A conversation is forgotten by a pool of which all agents are busy
    Given a pool of one agent, served over MCP
    When a client says "tea" in this process, and leaves while another is answered
    Then nothing remembers "tea" before that is

  Scenario: A memory that an agent sets in a conversation belongs to that conversation
    Given an agent that begins a new memory when told to, served over MCP
    When a client tells it "my password is hunter2", and both ask what was said
    Then the first is told that, and the other its own question

  Scenario Outline: When a session ends <how> in the middle of a call, nothing is left of its conversation
    Given an agent with a model, served over MCP
    When a client says "wait" <how>, and leaves before it is answered
    Then the server has no conversation, and nothing remembers "wait"

    Examples:
      | how                         |
      | in this process, as in 2025 |
      | over HTTP, as in 2025       |

  Scenario: When conversations exceed their limit, those that were idle for longest are forgotten
    Given an agent with a checkpointed graph, served over MCP with room for 2 conversations
    When clients begin 3 conversations over HTTP
    Then the first of them is gone, and the others go on
    And the checkpointer has 2 threads

  Scenario: A conversation with a call in flight is not forgotten
    Given an agent with a model, served over MCP with room for 1 conversations
    When a client begins another conversation while a call in the first is on
    Then the call fails with "too many conversations"
    And the first call is answered

  Scenario: A call whose loop is closed leaves no conversation behind
    Given a call that has begun a conversation
    When its loop is gone, and a collector closes its coroutine
    Then there is no conversation, and the collector had no error

  Scenario: A conversation that was idle for too long is forgotten
    Given an agent with a model, served over MCP, which forgets after 60 seconds
    When a conversation over HTTP was quiet for 61 seconds
    Then there is no such conversation any more

  Scenario Outline: <number> for <argument> is refused
    When an MCP server is made with <number> for <argument>
    Then InvalidArgumentError is raised, which says "<argument>"

    Examples:
      | argument             | number |
      | max_conversations    | 0      |
      | max_conversations    | 1.5    |
      | conversation_timeout | 0      |
      | conversation_timeout | soon   |

  Scenario Outline: A pool <that> is refused as a tool
    When an MCP server of a pool <that> is made
    Then InvalidArgumentError is raised, which says "<text>"

    Examples:
      | that                       | text            |
      | whose name has blanks      | the helpers     |
      | that is called as an agent | called 'agents' |
