@once @browser
Feature: The page shows an operator what happens, in a real browser

  Scenario: It loads without an error, and says what would be where nothing is
    Given a page that is open in a browser
    Then it says that it is connected, and what will be in each empty part
    And nothing has gone wrong in the browser, and no other server was asked

  Scenario: Runs are in the timeline with their nodes, and in the table
    Given a page that is open in a browser, with each node
    When a message waits in its node, a second one on its thread behind it, and a third has ended
    Then the timeline has "ada" running in the node work with one more waiting, and "bob" as ok
    And the table has "ada" as running in work, and as waiting for thread
    And a filter for "bob" leaves only that in the timeline

  Scenario: Markup, marks of direction, emoji and very long texts are text
    Given a page that is open in a browser, with content shown
    When messages fail and wait whose ids, names and errors are hostile
    Then each is shown as text, what would be unseen as a replacement character
    And no element and no script has come of them
    And nothing has gone wrong in the browser, and no other server was asked

  Scenario Outline: What messages say is <shown>
    Given a page that is open in a browser, with content <shown>
    When 3 messages fail, 2 take too long and 1 asks
    Then the failures are by kind: 3 of ValueError in check, and 2 of RunTimeoutError
    And the text of the message is <there> on the page

    Examples:
      | shown  | there     |
      | hidden | not there |
      | shown  | there     |

  Scenario Outline: A run is cancelled <how>, and only after it is confirmed
    Given a page that is open in a browser
    When a message waits in its node
    And its run is cancelled <how>, after the first thought was to let it run
    Then it has ended as cancelled, and the page says so

    Examples:
      | how               |
      | with the mouse    |
      | with the keyboard |

  Scenario: A question is answered from its form, and a second answer is told that it is too late
    Given a page that is open in a browser
    When a message asks on the thread "ada"
    And the page is opened a second time, where nothing new arrives
    And what is not JSON, and then an object, is answered in the first
    Then the run that asked has ended as ok, and its question is gone
    And the graph was given the number of 20 digits as it was typed
    When text is answered in the second
    Then the second says that it is too late
    And the graph was answered once

  Scenario: What is typed stays when the question is answered elsewhere
    Given a page that is open in a browser
    When a message asks on the thread "ada"
    And half an answer is typed, and others answer
    Then the form says that this is not asked any more, and what was typed is there until it is dismissed

  Scenario: A stuck run is shown with its stack
    Given a page that is open in a browser, where runs are stuck at once
    When a message waits in its node
    Then the page has it as stuck, with a stack that names wait_async
    And the stack of the table, opened and closed with the keyboard, names it too

  Scenario: What has the focus keeps it while snapshots arrive
    Given a page that is open in a browser
    When a message waits in its node, and what cancels it has the focus
    And 300 messages end
    Then what cancels it still has the focus

  Scenario: It can be paused
    Given a page that is open in a browser
    When it is paused, and 5 messages end
    Then it has ended none until it is resumed

  Scenario: A connection that is lost is made again, and what came after it is shown
    Given a process that serves its page on a port of its own
    When its page is open in a browser, and the process is killed
    Then the page says that it is reconnecting
    When the process is started again
    Then the page says that it is connected, and has only what the second process has

  Scenario: It says that the bridge is closed, and offers nothing any more
    Given a page that is open in a browser
    When a message asks on the thread "ada"
    And a message waits in its node
    And the bridge of the page is closed
    Then the page says that it has ended, and has nothing to press but what needs no server

  Scenario: Without the token it says where that is
    Given a page that is open in a browser
    When the browser forgets the token, and the connection is lost
    Then the page says that the address with the token is needed

  Scenario: Where too many pages are open it says so, and goes on when there is room
    Given a page that is open in a browser
    When it is opened once more while there is room for no other
    Then the page says that too many are open
    When there is room again
    Then the page says that it is connected

  Scenario: A journal has its progress by worker
    Given a folder with the file "graphs.py"
      """
      def graph(content):
          if content["n"] == 2:
              raise ValueError("no")
          return content
      """
    And a journal "run.sqlite" whose 2 workers have 3 messages in flight, and 2 failures
    When "rxlanggraph live run.sqlite" is started with a token of the environment
    And that page is opened in a browser
    Then it has the 3 messages by worker, the failures by kind, and no part that only bridges have
    When the rest is answered
    Then the page says that it has ended

  Scenario: Light and dark differ, and every text has enough contrast in both
    Given a page that is open in a browser, where runs are stuck at once
    When 3 messages fail, 2 take too long and 1 asks
    And every other kind of end is there too, and all is shown in light and in dark
    Then the colours differ, and the contrast of each text is 4.5 or more

  Scenario: A screen of 360 pixels has all of it, and scrolls one way only
    Given a page that is open in a browser, on a narrow screen
    When messages fail and wait whose ids, names and errors are hostile
    Then nothing is wider than the screen, with a dialog open or not

  Scenario Outline: The most and the longest of everything fits on a <wide> screen
    Given a page with the most and the longest of everything, on a <wide> screen
    When all runs are shown, one is cancelled, and a question is answered
    Then each is refused with a reason
    And nothing is wider than the screen, with a dialog open or not
    And it has fewer than 9000 elements

    Examples:
      | wide   |
      | wide   |
      | narrow |

  Scenario: Ten thousand runs a minute leave the page small
    Given a page that is open in a browser
    When runs of 300 threads come for 4 seconds, 170 a second
    Then the page has shown that, with fewer than 6000 elements
    And the page says how long it was busy at a time

  Scenario: A busy bridge, as in the pictures of the documentation
    Given a bridge that has much to do, whose page is open in light, in dark and on a narrow screen
    When as much has ended as the pictures need, if they are asked for
    Then each has runs with nodes, stuck ones, failures and questions, and its picture can be taken

  Scenario: A table of 250 runs is shown if it is asked for
    Given a page that is open in a browser
    When 400 messages wait behind 250
    Then the table has 25 runs, then 250, and says how many more there are
