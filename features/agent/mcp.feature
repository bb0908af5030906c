Feature: An MCP client gets an answer in time, and affects no other client

  # -- what a message may be ---------------------------------------------------------------------

  Scenario Outline: The text of an MCP message is found in <form>
    When the text is taken out of <form>
    Then the text is "<text>"

    Examples:
      | form                                        | text                      |
      | a string                                    | hello                     |
      | bytes in UTF-8                              | grüezi                    |
      | a mapping with a text                       | hello                     |
      | a mapping with a text of type text          | hello                     |
      | a mapping with a content                    | hello                     |
      | a mapping with a content of blocks          | hello                     |
      | a list of strings, blocks and bytes         | one; two; three           |
      | a tuple of blocks                           | one; two                  |
      | the SDK's text block                        | hello                     |
      | the SDK's embedded text                     | hello                     |
      | the SDK's embedded text, as on the wire     | hello                     |
      | the SDK's resource link                     | The title: file:///a.txt  |
      | the SDK's resource link, as on the wire     | The title: file:///a.txt  |
      | a link that has a name alone                | name: file:///a.txt       |
      | a link that has nothing but its address     | file:///a.txt             |
      | the SDK's prompt message                    | hello                     |
      | the SDK's prompt of two messages            | one; two                  |
      | the SDK's result of a tool                  | one; two                  |
      | the SDK's result of a tool, as on the wire  | one; two                  |
      | the SDK's contents of a resource            | hello                     |
      | a LangChain message                         | hello                     |
      | a LangChain message of blocks               | one; two                  |
      | text beside an image, audio and a blob      | hello                     |
      | text beside nothing and blanks              | hello                     |
      | fifteen lists around a string               | hello                     |

  Scenario Outline: An MCP message of <form> is refused, and the error describes what would be accepted
    When the text is taken out of <form>
    Then the sender has an AgentMessageError that says "<why>", and what would be read

    Examples:
      | form                        | why                                             |
      | nothing                     | it is empty                                     |
      | an empty string             | it is empty                                     |
      | blanks                      | it is empty                                     |
      | an empty list               | it is empty                                     |
      | an image                    | it holds only a block of type 'image'           |
      | audio                       | it holds only a block of type 'audio'           |
      | an image and audio          | of type 'image', a block of type 'audio'        |
      | a blob                      | it holds only a binary resource                 |
      | bytes that are not UTF-8    | the bytes of the message are not UTF-8          |
      | half of a surrogate pair    | cannot be encoded in UTF-8                      |
      | a number                    | an object of type int is not the content        |
      | an empty mapping            | an empty mapping is not the content             |
      | a mapping of something else | a mapping with 'temperature' is not the content |
      | a text that is a number     | a mapping with 'text' is not the content        |
      | text beside a number        | an object of type int is not the content        |

  Scenario Outline: An MCP message of <form> is refused before it costs anything
    When the text is taken out of <form>
    Then the sender has an AgentMessageError that says "<why>"

    Examples:
      | form                           | why                        |
      | a list that holds itself       | more than 16 levels deep   |
      | a mapping that holds itself    | more than 16 levels deep   |
      | ten times ten lists, 14 deep   | more than 10000 blocks     |
      | nothing, ten to the fourteenth | more than 10000 blocks     |

  # -- one that hangs ----------------------------------------------------------------------------

  Scenario Outline: A message on which <the recipient> hangs is answered at its deadline
    Given <the recipient> that has 30 virtual seconds for a message
    When it is sent "hang"
    Then the sender has a RunTimeoutError after 30 virtual seconds

    Examples:
      | the recipient |
      | a BaseAgent   |

    @tdd_expected_fail
    Examples: naive: no deadline
      | the recipient |
      | a naive agent |

  Scenario Outline: A message on which <the recipient> hangs delays those behind it until its deadline only
    Given <the recipient> that has 30 virtual seconds for a message
    When it is sent "hang" with 10 seconds, and "one, two, three" behind it
    Then "one, two, three" are answered after 10 virtual seconds, in this order

    Examples:
      | the recipient |
      | a BaseAgent   |

    @tdd_expected_fail
    Examples: naive: a lock is held for as long as the run takes
      | the recipient |
      | a naive agent |

  Scenario: The deadline of a message covers its wait for a turn too
    Given a BaseAgent that has 30 virtual seconds for a message
    When it is sent "hang", and "late" with 5 seconds behind it
    Then the sender of "late" has a RunTimeoutError after 5 virtual seconds
    And "late" was never begun

  Scenario: Fifty agents that hang slow no other
    Given 50 BaseAgents that hang on a message
    When another BaseAgent is sent "one"
    Then it has answered after 0 virtual seconds

  Scenario Outline: A sender that gives up <when> cancels its own run, and no other
    Given a BaseAgent that has 30 virtual seconds for a message
    When it is sent "<first>" and "<second>", and the sender of "<one>" gives up
    Then the sender of "<other>" has its answer after <seconds> virtual seconds
    And nothing of "<one>" goes on

    Examples:
      | when                        | first   | second | one  | other   | seconds |
      | while its run is on         | hang    | two    | hang | two     | 0       |
      | while it waits for its turn | sleep 5 | two    | two  | sleep 5 | 5       |

  Scenario: A message that cannot be read does not wait for its turn
    Given a BaseAgent that has 30 virtual seconds for a message
    When it is sent "hang", and an image behind it
    Then the sender of the image has an AgentMessageError after 0 virtual seconds

  # -- as a tool of a server ---------------------------------------------------------------------

  Scenario Outline: Each agent is a tool, named and described as the agent is, for a client of <era>
    Given a client of <era> at an MCP server of agents
    When the client lists the tools
    Then they are
      | name       | description                 |
      | described  | Knows the weather.          |
      | documented | Does what it is told.       |
      | plain      | Ask the agent 'plain'.      |
    And each takes a message, and who sends it if need be

    Examples:
      | era  |
      | 2026 |
      | 2025 |

  Scenario Outline: Called with <what>, an agent answers <answer>
    Given a client of 2026 at an MCP server of agents
    When the client calls the agent with <what>
    Then the tool answers <answer>

    Examples:
      | what                             | answer                 |
      | a word                           | the word               |
      | JSON in a string                 | the same string        |
      | a million letters                | all of them            |
      | a request for blocks of text     | their text             |
      | a request for a mapping          | the mapping as JSON    |
      | a request for an image           | the image as JSON      |
      | a request for nothing            | nothing                |

  Scenario Outline: <what> is an error of the tool with a clear text
    Given a client of <era> at an MCP server of agents
    When the client calls the agent with <what>
    Then the call fails with "<text>"
    And neither a traceback nor a secret is in it

    Examples:
      | what                         | era  | text                                                             |
      | a message that hangs         | 2026 | did not end within                                               |
      | a message that hangs         | 2025 | did not end within                                               |
      | an empty message             | 2026 | there is no text in the message                                  |
      | no message                   | 2026 | Field required                                                   |
      | a message that makes it fail | 2026 | agent 'plain' failed with Leaky; see the log of the server |
      | a message that makes it fail | 2025 | agent 'plain' failed with Leaky; see the log of the server |
      | a message that cancels it    | 2026 | the run of agent 'plain' was cancelled                           |

  Scenario Outline: An answer that cannot be encoded is an error of that call, and of no other: <what>
    Given a client of <era> at an MCP server of agents
    When the client is answered with <what>, while another call is on
    Then that call fails with "<text>"
    And the other call is answered, and so is the next one

    Examples:
      | what                               | era  | text              |
      | half of a surrogate pair           | 2026 | cannot be encoded |
      | half of a surrogate pair           | 2025 | cannot be encoded |
      | half of a surrogate pair in a list | 2025 | failed with       |
      | half of a surrogate pair as a key  | 2025 | failed with       |
      | a list that holds itself           | 2025 | failed with       |
      | an object that cannot be shown     | 2025 | failed with       |
      | bytes that are not UTF-8           | 2025 | failed with       |
      | an error with half of such a pair  | 2026 | half of           |

  Scenario: An agent's exception is logged on the server
    Given a client of 2026 at an MCP server of agents
    When the client calls the agent with a message that makes it fail
    Then the log holds the error with its secret

  Scenario: If the program has not configured logging, a failure is logged unchanged
    # The SDK would have rich paint it, which holds up all calls for as long.
    When a new interpreter makes an MCP server
    Then its log goes to a logging.StreamHandler, from WARNING

  Scenario: An agent that has failed once answers the next call
    Given a client of 2026 at an MCP server of agents
    When the client calls the agent with a message that makes it fail
    And the client calls the agent with a word
    Then the tool answers the word

  Scenario Outline: Calls to different agents run concurrently, for a client of <era>
    Given a client of <era> at an MCP server of agents
    When the client calls three agents that wait for each other
    Then all three have met

    Examples:
      | era  |
      | 2026 |
      | 2025 |

  Scenario Outline: <count> calls to one agent run one after another, in the order of arrival
    Given a client of 2026 at an MCP server of agents
    When the client makes <count> calls to one agent at once
    Then all are answered, and they were begun in order, each after the end of the one before

    Examples:
      | count |
      | 20    |
      | 1000  |

  Scenario Outline: A call that its client of <era> cancels ends its run, and <served> that run cleans up undisturbed
    Given a client of <era> at an MCP server whose agents are <served>
    When the client cancels a call once its run is on
    Then the run was cancelled once, and its cleanup came to its end

    Examples:
      | era  | served                |
      | 2026 | served by mcp_server  |
      | 2025 | served by mcp_server  |
      | 2026 | made tools themselves |
      | 2025 | made tools themselves |

  Scenario: A run that does not end when it is cancelled is left behind, and named in the log
    Given a client of 2025 at an MCP server of agents, one of which will not be cancelled
    When the client cancels a call to that one
    Then the log says that it continues
    And the client may call the others

  Scenario: A run that ignores its deadline is left behind, and its caller has an answer
    Given a client of 2026 at an MCP server of agents, one of which will not be cancelled
    When the client calls that one, which has a twentieth of a second
    Then the call fails with "did not end within 0.05 s"
    And the log says that it continues

  # -- what can be served ------------------------------------------------------------------------

  Scenario Outline: An MCP server of <what> is refused with <error>
    When an MCP server of <what> is made
    Then <error> is raised, which says "<text>"

    Examples:
      | what                       | error                | text                              |
      | nothing                    | InvalidArgumentError | pass at least one agent           |
      | two agents of one name     | InvalidArgumentError | two agents are called 'twin'      |
      | an agent with a blank name | InvalidArgumentError | letters, digits, '_', '-' and '.' |
      | an agent with a long name  | InvalidArgumentError | up to 128                         |
      | a chat model               | InvalidTypeError     | can be served, not                |

  Scenario Outline: A grace of <grace> is refused with InvalidArgumentError
    When serve_http is called with a grace of <grace>
    Then InvalidArgumentError is raised, which says "grace must be a number of seconds"

    Examples:
      | grace |
      | -1    |
      | nan   |
      | inf   |
      | soon  |
      | none  |

  Scenario Outline: <Serving> in a loop's own thread is refused, as it would block the loop
    When <serving> is called on a loop
    Then BlockingCallError is raised, which says "mcp_server()"

    Examples:
      | Serving       | serving     |
      | A stdio server | serve_stdio |
      | An HTTP server | serve_http  |

  Scenario: An address that is taken is an OSError, and no SystemExit
    When serve_http is called with a port that is in use
    Then OSError is raised, which says "in use"

  Scenario: Without the SDK the error of the import names the extra to install
    When the MCP part is imported where the SDK is not installed
    Then MissingExtraError is raised, which says "pip install 'rxlanggraph[mcp]'"

  Scenario: Nothing else of the package needs the SDK
    When a new interpreter without the SDK imports rxlanggraph.agent
    Then the import succeeds
