@once
Feature: rxlanggraph top shows the data of a live page on a terminal

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio

      async def graph(content):
          if content["n"] == 2:
              raise ValueError("the text of the error")
          return content
      """

  Rule: The screen

    Background:
      Given a bridge with 2 slots, whose page is served with content

    Scenario: It shows the load, and each run in flight with its state
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      Then the screen shows in the view "Runs 3": "active 2 of 2  queued 1"
      And the rows of the screen are
        """
        ada clerk work running
        bob clerk work running
        cleo clerk queued
        """

    Scenario Outline: The view <view> has what belongs there
      When messages have failed on "bob", asked on "cleo", and one is stuck on "ada"
      And the screen is open, of <size>
      Then the screen shows in the view "<view>": "<text>"
      And the screen shows in the view "<view>": "<detail>"

      Examples:
        | view        | size    | text                                    | detail                 |
        | Recent      | 100x24  | cleo                                    | thread cleo, message   |
        | Slowest     | 100x24  | ValueError                              | bob                    |
        | Stuck 1     | 200x60  | File "                                  | wait_async             |
        | Failures 1  | 100x24  | ValueError in check: the-secret-of-the- | thread bob             |
        | Questions 1 | 100x24  | {"may I": "the-secret-of-the-message"}  | waits                  |

    Scenario: Names are shown as they are: markup, control characters and all
      When a message waits on the thread "[red]ada[/red] \x1b[2J\u202e"
      And the screen is open, of 200x24
      Then the screen shows in the view "Runs 1": "[red]ada[/red] \x1b[2J\u202e"

    Scenario: A run is cancelled after a question, and not without
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      And I press "down c"
      Then the screen shows "Cancel this run?" and "thread bob"
      When I press "n"
      Then all 3 runs are in flight
      When I press "c y"
      Then the run on "bob" is cancelled, and the others are in flight
      And the screen says "cancelled"

    Scenario: A run that has ended meanwhile cannot be cancelled, and its stack is not there
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      And I press "p c"
      And all runs end
      And I press "y"
      Then the screen says "it is not in flight any more"
      When what it said is over, and I press "s"
      Then the screen says "it is not in flight any more"

    Scenario Outline: The key <key> says what it needs in the view <view>
      When a message waits on the thread "ada"
      And the screen is open
      And I choose the view "<view>"
      And I press "<key>"
      Then the screen says "<needs>"

      Examples:
        | key | view      | needs                   |
        | c   | Questions | select a run first      |
        | s   | Failures  | select a run first      |
        | a   | Runs      | select a question first |

    Scenario: The stack of a run is where it is
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      And I press "s"
      Then the screen shows "Run 1" and "await opened.wait()"

    Scenario Outline: What is written as <written> answers a question with <value>
      When a message asks on the thread "ada", and notes the answer
      And the screen is open
      And I choose the view "Questions"
      And I press "a"
      And I write "<written>"
      Then the screen shows "is sent as <kind>"
      When I press "enter"
      Then the answer was <value>
      And the screen says "the answer: ended, ok"

      Examples:
        | written      | kind | value        |
        | yes          | text | "yes"        |
        | {"ok": true} | JSON | {"ok": true} |
        | null         | JSON | null         |
        | '42'         | text | "'42'"       |
        | "42"         | text | "42"         |
        | NaN          | text | "NaN"        |
        | "\ud800"     | text | "\ud800"     |

    Scenario: A question that was answered elsewhere is stale
      When a message asks on the thread "ada", and notes the answer
      And the screen is open
      And I choose the view "Questions"
      And I press "a"
      And it is answered elsewhere
      And I write "late"
      And I press "enter"
      Then the screen says "stale"

    Scenario: A filter keeps the rows whose thread or graph has a text in it
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      And I press "/ B O"
      Then the rows of the screen are
        """
        bob clerk work running
        """
      When I press "enter escape"
      Then 3 rows are shown

    Scenario: A pause keeps the screen as it is
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      And I press "p"
      And all runs end
      And a further snapshot has come
      Then 3 rows are shown, and "PAUSED"
      When I press "p"
      Then 0 rows are shown

    Scenario: The selection follows its run when others end
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      And I press "down"
      And the run on "ada" is cancelled elsewhere
      Then 2 rows are shown, and "thread bob"

    Scenario: The row that is selected is told in words
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open
      And I press "down down enter"
      Then the screen shows "message" and "thread cleo"

    Scenario Outline: It works on a screen of <size>
      When 3 messages wait on the threads "ada", "bob" and "cleo"
      And the screen is open, of <size>
      And I press "tab tab tab tab tab tab shift+tab ? escape s escape p p"
      Then it is still running

      Examples:
        | size   |
        | 20x5   |
        | 80x24  |
        | 300x90 |

    Scenario Outline: <key> ends it with status <status>
      When the screen is open
      And I press "<key>"
      Then it has ended with status <status>

      Examples:
        | key    | status |
        | q      | 0      |
        | ctrl+c | 130    |

  Rule: The connection

    Background:
      Given a bridge with 2 slots, whose page is served with content

    Scenario: A lost connection is opened again
      When a message waits on the thread "ada"
      And the screen is open, through a network
      And the network ends all connections
      Then the screen shows "reconnecting in 0.5 s" and "ada"
      When the pause is over
      Then the screen shows "connected" and "ada"

    Scenario: While nothing answers the pauses grow
      When the screen is open, through a network
      And the page ends without saying so
      Then the pauses are 0.5, 1, 2, 4, 8, 16, 30, 30 seconds

    Scenario: What cannot be asked for is said, and the screen goes on
      When a message waits on the thread "ada"
      And the screen is open, through a network
      And the page ends without saying so
      And I press "c y"
      Then the screen says "does not answer"
      And it is still running

    Scenario: A page with another token ends it with an error
      When the screen is open, through a network
      And another page is served at the same address
      Then it ends with an error that says "new for each run"

    Scenario: The end of the bridge is said, and what was last seen stays
      When a message waits on the thread "ada"
      And the screen is open
      And its bridge is closed
      Then the screen shows "ended (closed)" and "closed"
      When I press "q"
      Then it has ended with status 0

    Scenario Outline: <what> is an error of one line
      When top is run once for <what>
      Then the exit status is 2
      And standard error is one line that says "<one>", "<two>" and "rxlanggraph"

      Examples:
        | what                    | one                       | two              |
        | a wrong token           | refuses this token        | printed last     |
        | no token                | needs its token           | ?token=          |
        | another name of a host  | not known by this name    | allowed_hosts    |
        | a path without a page   | there is no live page     | run --live       |
        | a page of other software | there is no live page    | run --live       |
        | JSON nested too deep    | there is no live page     | run --live       |
        | a port without a server | does not answer           | 127.0.0.1        |
        | a port too high         | is not an address         | http://          |
        | no host                 | is not an address         | http://          |
        | an address without http | 127.0.0.1                 | http://          |
        | a bracket too few       | is not an address         | http://          |
        | a token with a space    | has no such token         | 127.0.0.1        |
        | a server that fails     | status 500                | 127.0.0.1        |
        | a later release         | another release           | browser          |

  Rule: The command

    Scenario: Once, it prints the state of a page as plain text
      Given a bridge with 2 slots, whose page is served with content
      When messages have failed on "bob", asked on "cleo", and one is stuck on "ada"
      And top is run once for the page
      Then the exit status is 0
      And standard output has "Runs", "Stuck", "ada", "ValueError", "Questions" and "cleo"
      And it has no control characters

    Scenario: What has blocked the loop is among the stuck
      Given a bridge with 2 slots, whose page is served with content
      And its loop was blocked for 3 seconds in "module:function"
      When its snapshot is printed as plain text
      Then standard output has "Stuck", "the loop", "blocked", "3.0s", "module" and "function"

    Scenario: The token may be in the environment
      Given a bridge with 2 slots, whose page is served with content
      When top is run once for the page, with its token in the environment
      Then the exit status is 0
      And standard error is empty

    Scenario: Once, it prints the progress of a journal as plain text
      Given a journal "run.sqlite" whose 2 workers have 3 messages in flight, and 2 failures
      When top is run once for the journal
      Then the exit status is 0
      And standard output has "worker one", "worker two", "2 in flight", "ValueError", "Journal" and "Failures"

    Scenario: The progress of a journal is on the screen, until its end
      Given a journal "run.sqlite" whose 2 workers have 3 messages in flight, and 2 failures
      When its screen is open
      Then the screen shows "worker two" and "2 in flight"
      And the keys for cancelling, answering and stacks are not offered
      When the rest is answered
      And the pause is over
      Then the screen shows "ended" and "closed"

    Scenario Outline: <line> is refused
      When I run "rxlanggraph top <line>"
      Then the exit status is 2
      And standard error says "<says>"

      Examples:
        | line                                      | says             |
        | nothing.sqlite --once                     | is not a journal |
        | localhost:8000 --once                     | localhost:8000 is not an address: write http://HOST:PORT/?token=... |
        | http://127.0.0.1:9/?token=a               | --once           |
        | http://127.0.0.1:9/?token=a --content     | --live-content   |

    Scenario: Without the extra it is refused with the name of the extra
      Given httpx_sse is not installed
      When I run "rxlanggraph top http://127.0.0.1:9/?token=a --once"
      Then the exit status is 2
      And standard error is one line that says "httpx-sse", "pip install" and "rxlanggraph[live]"

    Scenario: Without Textual the screen is refused with the name of the extra
      When top is run in a terminal where Textual is not installed
      Then it ends with status 2, and says "rxlanggraph[live]"

    Scenario Outline: In a terminal, <what> ends it with status <status>, and the terminal is as before
      Given a bridge with 2 slots, whose page is served with content
      And a message waits on the thread "ada"
      When top is started in a terminal
      Then the terminal shows "ada"
      When the terminal gets <what>
      Then it ends with status <status>, and the terminal is as before

      Examples:
        | what    | status |
        | q       | 0      |
        | Ctrl-C  | 130    |
        | SIGINT  | 130    |
        | SIGTERM | 143    |
        | SIGHUP  | 129    |
        | SIGTERM while it asks a question | 143 |

    Scenario: A terminal that goes away without a signal ends it
      Given a bridge with 2 slots, whose page is served with content
      And a message waits on the thread "ada"
      When top is started in a terminal
      Then the terminal shows "ada"
      When the terminal goes away
      Then it ends with status 129, though nothing reads its output

    Scenario: In a terminal that takes no output, the second SIGTERM ends it
      Given a bridge with 2 slots, whose page is served with content
      And a message waits on the thread "ada"
      When top is started in a terminal
      Then the terminal shows "ada"
      When the terminal takes no output any more
      And SIGTERM is sent until it has ended
      Then SIGTERM was needed twice
