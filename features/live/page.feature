Feature: The page is for those who have its token, on this machine

  Background:
    Given a bridge whose page is open

  Scenario Outline: A request <request> gets <status>
    When the page is asked <request>
    Then each status is <status>, and nothing of the bridge is in it unless it is 200

    Examples:
      | request                                  | status |
      | with the token                           | 200    |
      | without a token                          | 401    |
      | with a wrong token                       | 401    |
      | with a wrong token in the address        | 401    |
      | with a token that is not ASCII           | 401    |
      | with a wrong cookie                      | 401    |
      | with a cookie that cannot be read        | 401    |
      | with the token, for another host         | 421    |
      | with the token, without a host           | 421    |
      | with the token, for localhost            | 200    |
      | with the token, from another page        | 403    |
      | with the token, from another port        | 403    |
      | with the token, from no page             | 403    |
      | with the token, from this page           | 200    |

  Scenario: A visit with the token sets a cookie, and goes to the page without it
    When a browser visits the address with the token
    Then it is sent to the page without the token, with a cookie for it alone, strict and unseen by scripts
    And it has the page, its script and its style
    And the token is in neither cookie nor page

  Scenario Outline: The cookie is found beside one of another server that is <other>
    When a browser with the cookie sends "<cookie>" along
    Then it has the page

    Examples:
      | other           | cookie                |
      | JSON            | a={"b": 1}            |
      | a list          | a[b]=1                |
      | without a name  | =a                    |
      | without a value | a                     |
      | cut             | a="b                  |
      | not ASCII       | é=1                   |
      | nearly its own  | rxlanggraph-live-0=1  |

  Scenario: With the cookie, what changes something has to say which page it is from
    When a browser with the cookie cancels a run from <page>
      | page         | status |
      | no page      | 403    |
      | another port | 403    |
      | this page    | 200    |
    Then each status is as it should be

  Scenario: Every response says what browsers may do with it
    Then the page, its files, its data, its events, refusals and what is not there all have the headers

  Scenario: Events are a snapshot at once, then more, and an end when the bridge closes
    When a client of the page listens
    Then it has a snapshot at once, and a later one after that
    When the bridge of the page is closed
    Then the last snapshot of the client says closed, and the stream ends
    And a client that listens later has one snapshot and the end

  Scenario: Clients that leave are forgotten, and their places are free again
    When 32 clients listen
    Then a further one is refused with 503
    When all but one leave
    Then a further one has a snapshot
    And when they have left, nothing takes snapshots any more

  Scenario: Clients whose loop was closed before they left keep no place
    When 32 clients listen, each on a loop that is closed before it leaves
    Then one that listens on another loop has a snapshot

  Scenario: A client that does not read holds nobody up, at the end either
    Given so much in the snapshots that no buffer holds two
    When a client listens and does not read
    Then another client has 3 snapshots meanwhile
    And the page ends within seconds, and logs no error

  Scenario: A machine that stands still as the page ends makes it log no error
    Given so much in the snapshots that no buffer holds two
    When a client listens and does not read
    And the loop of the page stands still as that client is about to be cut off
    Then the page ends within seconds, and logs no error

  Scenario: A run is cancelled once
    When a message waits in its node
    Then its stack is there
    And cancelling it is 200, and again 404
    And cancelling a run that never was is 404

  Scenario Outline: A body that is <what> is refused with <status>
    When an answer is sent whose body is <what>
    Then the answer is refused with <status>

    Examples:
      | what                  | status |
      | not JSON              | 400    |
      | a list                | 400    |
      | without a value       | 400    |
      | nested too deep       | 400    |
      | NaN, which JSON lacks | 400    |
      | of another type       | 415    |
      | a megabyte            | 413    |

  Scenario: Markup in ids, names and errors is data
    When a message fails whose ids, node and error are markup
    Then the data has them as they are, as JSON that no browser takes for a page

  Scenario Outline: It is mounted in an application at <path>, as under any path
    Given an application that has the page mounted at "<path>"
    When a browser visits the address with the token
    Then it is sent to the page without the token, with a cookie for it alone, strict and unseen by scripts
    And it has the page, its script and its style
    And "<path>" without a slash leads there too

    Examples:
      | path      |
      | /ops/live |
      | /o p/活   |
      | /@a:b/(c) |

  Scenario: It is mounted in an application behind a proxy that strips a part of the path
    Given an application behind a proxy for "/ops" that has the page mounted at "/live"
    When a browser visits the address with the token
    Then it is sent to the page without the token, with a cookie for it alone, strict and unseen by scripts
    And it has the page, its script and its style

  Scenario: It is served on the bridge's own loop as well
    Given an application on the loop that the bridge adopts
    When a message waits in its node
    Then the page has it, and can cancel it

  Scenario: A page that is dropped looks at the bridge no more
    When the page is made once more, and dropped
    Then the bridge has as many hooks as before

  Scenario Outline: The page is not made <how>
    When a page is made <how>
    Then <error> is raised, which says "<says>"

    Examples:
      | how                          | error                | says                      |
      | with a short token           | InvalidArgumentError | 16 or more visible ASCII  |
      | with a token of bytes        | InvalidTypeError     | token must be a string    |
      | with one host as a string    | InvalidTypeError     | allowed_hosts must be     |
      | with a host that is none     | InvalidArgumentError | allowed_hosts must hold   |
      | with a graph without threads | InvalidArgumentError | checkpointer              |
      | with stuck_after=0           | InvalidArgumentError | stuck_after               |
      | with show_content="no"       | InvalidTypeError     | True or False             |
      | with a graph as its graphs   | InvalidTypeError     | a list of graphs          |
      | with a name as its graphs    | InvalidTypeError     | a list of graphs          |
      | without the extra            | MissingExtraError    | rxlanggraph[live]         |
