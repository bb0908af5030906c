Feature: A graph of a LangGraph server runs as any other

  LangGraph's own RemoteGraph sends each run to a server, here to one in this process.

  Scenario Outline: A server's graph that stops in <place> ends as interrupted, through <entry>
    Given an open bridge on its own loop
    And a server's graph that stops in <place>
    When it is started on a thread through <entry>
    Then its result is interrupted without an error, and asks <questions>
    When all of that is answered with "yes" through <entry>
    Then its result is ok, and it has said <said>

    Examples:
      | place                      | entry              | questions       | said                    |
      | one node                   | create_future_task | "first?"        | "first? yes"            |
      | one node                   | invoke             | "first?"        | "first? yes"            |
      | one node                   | stream             | "first?"        | "first? yes"            |
      | one node                   | astream            | "first?"        | "first? yes"            |
      | nodes side by side         | create_future_task | "left?, right?" | "left? yes, right? yes" |
      | a breakpoint before a node | create_future_task | ""              | "done"                  |
      | a breakpoint before a node | stream             | ""              | "done"                  |

  Scenario: A breakpoint of the call stops a server's graph
    Given an open bridge on its own loop
    And a server's graph of the nodes first and second
    When it is called with interrupt_before=["second"]
    Then it has stopped there, and None continues it

  Scenario Outline: A server's graph streams the chunks that "astream" gives, in the modes <modes>
    Given an open bridge on its own loop
    And a server's graph of the nodes first and second
    When it is streamed by "astream", and through stream, in the modes <modes>
    Then the same chunks have come, and then the result

    Examples:
      | modes            |
      | updates          |
      | values           |
      | updates, values  |
      | custom, messages |
