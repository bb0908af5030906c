Feature: A signal handler or a finalizer may use the bridge while its own thread is using it

  Scenario Outline: A <entering> that <does this> in the middle of <inside>, of a bridge that <is used>
    Given a bridge that <is used>
    When a <entering> comes in at each place of <inside>, and <does this>
    Then each time all was as it should be, at more than 20 places

    Examples: a bridge in use
      | entering       | does this      | inside                    | is used        |
      | signal handler | hands over     | handing over              | is in use      |
      | finalizer      | hands over     | handing over              | is in use      |
      | signal handler | hands over     | cancelling a future       | is in use      |
      | signal handler | cancels        | handing over              | is in use      |
      | finalizer      | cancels        | handing over              | is in use      |
      | signal handler | hands over     | cleaning up               | is in use      |
      | signal handler | hands over     | closing                   | is in use      |
      | signal handler | cleans up      | handing over              | is in use      |
      | finalizer      | cleans up      | handing over              | is in use      |
      | signal handler | cleans up      | cleaning up               | is in use      |
      | signal handler | closes         | handing over              | is in use      |
      | finalizer      | closes         | handing over              | is in use      |
      | signal handler | closes         | closing                   | is in use      |

    Examples: a bridge at its first use
      | entering       | does this      | inside                    | is used        |
      | signal handler | hands over     | handing over              | is yet unused  |
      | finalizer      | hands over     | handing over              | is yet unused  |
      | signal handler | closes         | handing over              | is yet unused  |
      | finalizer      | closes         | handing over              | is yet unused  |
      | signal handler | hands over     | closing                   | is yet unused  |

  Scenario: A signal handler that closes in the middle of closing, of a bridge on an adopted loop
    Given a bridge that is in use on a loop that another thread runs
    When a signal handler comes in at each place of closing, and closes
    Then each time all was as it should be, at more than 20 places

  Scenario Outline: A handler's <exception> in the middle of <inside>, of a bridge that <is used>
    Given a bridge that <is used>
    When a signal handler raises <exception> at each place of <inside>
    Then each time all was as it should be, at more than 20 places

    Examples:
      | exception         | inside                         | is used       |
      | KeyboardInterrupt | handing over                   | is in use     |
      | TimeoutError      | handing over                   | is in use     |
      | KeyboardInterrupt | handing over                   | is yet unused |
      | KeyboardInterrupt | handing over with max_pending  | is in use     |
      | KeyboardInterrupt | a message of a stream          | is in use     |
      | TimeoutError      | a message of a stream          | is in use     |
      | KeyboardInterrupt | a message of a stream          | is yet unused |
      | KeyboardInterrupt | a message of an ordered stream | is in use     |
      | KeyboardInterrupt | cancelling a future            | is in use     |
