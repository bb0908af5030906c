Feature: A graph is called as LangGraph calls it, with LangGraph's own arguments

  Each graph is called by "ainvoke" alone and through the bridge, a new one each time. The results
  are compared, and the state of the thread where there is a checkpointer.

  Scenario Outline: <graph>: the same results by <entry> as by "ainvoke"
    Given an open bridge on its own loop
    When a graph that shows "<graph>" is called by "ainvoke", and by <entry>
    Then the results are the same

    Examples:
      | graph                               | entry              |
      | an async node                       | create_future_task |
      | an async node                       | invoke             |
      | a sync node                         | create_future_task |
      | a sync node                         | invoke             |
      | a sequence of nodes                 | create_future_task |
      | a sequence of nodes                 | invoke             |
      | a loop                              | create_future_task |
      | a loop                              | invoke             |
      | parallel nodes and a deferred one   | create_future_task |
      | parallel nodes and a deferred one   | invoke             |
      | Send to many                        | create_future_task |
      | Send to many                        | invoke             |
      | a subgraph as a node                | create_future_task |
      | a subgraph as a node                | invoke             |
      | a subgraph called by a node         | create_future_task |
      | a subgraph called by a node         | invoke             |
      | Command(goto) by a node             | create_future_task |
      | Command(goto) by a node             | invoke             |
      | Command(graph=PARENT) by a subgraph | create_future_task |
      | Command(graph=PARENT) by a subgraph | invoke             |
      | the functional API                  | create_future_task |
      | the functional API                  | invoke             |
      | the functional API with memory      | create_future_task |
      | the functional API with memory      | invoke             |
      | messages with a checkpointer        | create_future_task |
      | messages with a checkpointer        | invoke             |
      | create_react_agent with a tool      | create_future_task |
      | create_react_agent with a tool      | invoke             |
      | create_agent with a tool            | create_future_task |
      | create_agent with a tool            | invoke             |
      | tools alone                         | create_future_task |
      | tools alone                         | invoke             |
      | a store                             | create_future_task |
      | a store                             | invoke             |
      | a cached node                       | create_future_task |
      | a cached node                       | invoke             |
      | a node with a retry policy          | create_future_task |
      | a node with a retry policy          | invoke             |
      | a fallback that is not a graph      | create_future_task |
      | a fallback that is not a graph      | invoke             |
      | a pydantic state                    | create_future_task |
      | a pydantic state                    | invoke             |
      | an output schema                    | create_future_task |
      | an output schema                    | invoke             |
      | a breakpoint before there is output | create_future_task |
      | a breakpoint before there is output | invoke             |
      | a graph in a sequence               | create_future_task |
      | a graph in a sequence               | invoke             |
      | a graph with a bound config         | create_future_task |
      | a graph with a bound config         | invoke             |
      | context                             | create_future_task |
      | context                             | invoke             |
      | context as a dictionary             | create_future_task |
      | context as a dictionary             | invoke             |
      | output_keys, one                    | create_future_task |
      | output_keys, one                    | invoke             |
      | output_keys, a list                 | create_future_task |
      | output_keys, a list                 | invoke             |
      | durability exit                     | create_future_task |
      | durability exit                     | invoke             |
      | durability sync                     | create_future_task |
      | durability sync                     | invoke             |
      | interrupt_before, and on            | create_future_task |
      | interrupt_before, and on            | invoke             |
      | interrupt_after, and on             | create_future_task |
      | interrupt_after, and on             | invoke             |
      | two questions, and their answers    | create_future_task |
      | two questions, and their answers    | invoke             |
      | questions at once, and no answer    | create_future_task |
      | questions at once, and no answer    | invoke             |
      | Command(update, goto) as content    | create_future_task |
      | Command(update, goto) as content    | invoke             |

  Scenario Outline: <graph>: the same chunks through stream as from "astream", in every mode
    Given an open bridge on its own loop
    When a graph that shows "<graph>" is streamed by "astream", and through stream
    Then the chunks are the same in each mode, with subgraphs and without, and so is the result

    Examples:
      | graph                               |
      | an async node                       |
      | a sync node                         |
      | a sequence of nodes                 |
      | a loop                              |
      | parallel nodes and a deferred one   |
      | Send to many                        |
      | a subgraph as a node                |
      | a subgraph called by a node         |
      | Command(goto) by a node             |
      | Command(graph=PARENT) by a subgraph |
      | the functional API                  |
      | the functional API with memory      |
      | messages with a checkpointer        |
      | create_react_agent with a tool      |
      | create_agent with a tool            |
      | tools alone                         |
      | a store                             |
      | a cached node                       |
      | a node with a retry policy          |
      | a pydantic state                    |
      | an output schema                    |
      | a graph with a bound config         |
      | context                             |
      | context as a dictionary             |
      | output_keys, one                    |
      | output_keys, a list                 |
      | durability exit                     |
      | durability sync                     |
      | interrupt_before, and on            |
      | interrupt_after, and on             |
      | two questions, and their answers    |
      | questions at once, and no answer    |
      | Command(update, goto) as content    |

  Scenario: A graph in a sequence streams its chunks, and the steps behind it get its result
    Given an open bridge on its own loop
    When a graph and a function behind it, as a sequence, are streamed by "astream", and through stream
    Then "astream" has failed, for the function got a chunk
    And through stream came the chunks of the graph, and what "ainvoke" returns

  Scenario Outline: Context and config may be functions of the message, by <entry>
    Given an open bridge on its own loop
    When two messages go by <entry>, with a function of the message for context and for config
    Then each was called with its own context, tags and thread

    Examples:
      | entry              |
      | create_future_task |
      | invoke             |

  Scenario Outline: The timeout may be a function of the message, by <entry>
    Given an open bridge on its own loop
    When two messages go to a waiting graph by <entry>, with a timeout for one of them alone
    Then that one timed out, and the other was answered

    Examples:
      | entry              |
      | create_future_task |
      | invoke             |

  Scenario Outline: What <what> as a function of the message raises is raised by <entry>, and nothing runs
    Given an open bridge on its own loop
    When <what> of a message raises ZeroDivisionError, by <entry>
    Then ZeroDivisionError is raised
    And nothing was ever submitted to the bridge

    Examples:
      | what        | entry              |
      | the context | create_future_task |
      | the context | invoke             |
      | the config  | create_future_task |
      | the config  | invoke             |
      | the timeout | create_future_task |
      | the timeout | invoke             |

  Scenario Outline: An async function of the message for <what> is refused by <entry>, and its coroutine closed
    Given an open bridge on its own loop
    When <what> of a message is given by an async function, by <entry>
    Then InvalidTypeError is raised, which says "must be a plain function"
    And nothing was ever submitted to the bridge

    Examples:
      | what          | entry              |
      | the context   | create_future_task |
      | the context   | invoke             |
      | the config    | create_future_task |
      | the config    | invoke             |
      | the timeout   | create_future_task |
      | the timeout   | invoke             |
      | the thread_id | invoke             |

  Scenario Outline: A function that has a parameter named context gets it, by <entry>
    Given an open bridge on its own loop
    When a function of content, context gets a context, by <entry>
    Then it has returned the content and the context

    Examples:
      | entry              |
      | create_future_task |
      | invoke             |

  Scenario Outline: An argument that would be ignored is refused: <call>
    Given an open bridge on its own loop
    And a graph of the nodes first and second
    When the code under test calls "bridge.<call>"
    Then <error> is raised, which says "<words>"
    And nothing was ever submitted to the bridge

    Examples:
      | call                                                       | error                | words                                           |
      | create_future_task(graph, {}, durability='never')          | InvalidArgumentError | must be 'sync', 'async' or 'exit', not 'never'  |
      | create_future_task(graph, {}, interrupt_before='first')    | InvalidTypeError     | must be '*' or a list of nodes; pass ['first']  |
      | create_future_task(graph, {}, interrupt_before=['third'])  | InvalidArgumentError | not a node of the graph; it has first, second   |
      | invoke(graph, interrupt_after=['third'])                   | InvalidArgumentError | interrupt_after names 'third'                   |
      | invoke(graph, interrupt_after=[1])                         | InvalidTypeError     | must be a list of strings, and has 1            |
      | invoke(graph, output_keys=7)                               | InvalidTypeError     | output_keys must be a list of strings, not 7    |
      | create_future_task(print, 1, durability='sync')            | InvalidArgumentError | durability can only be passed with a compiled LangGraph graph |
      | invoke(print, context=1)                                   | InvalidArgumentError | context is passed to a function that has a parameter of that name |
      | create_future_task(graph, {}, timeout=lambda message: 'x') | InvalidArgumentError | timeout must be a number of seconds above 0, or None for no limit, not 'x' |
      | create_future_task(graph, {}, config=lambda message: 'x')  | InvalidTypeError     | config must be a mapping                        |
