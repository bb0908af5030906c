@once
Feature: The command serves the page of its run, for as long as it lasts

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio, json, re, sys
      from urllib.request import Request, urlopen

      def read(path):
          said = sys.stderr.buffer.getvalue().decode()
          address, token = re.search(r"live: (http://\S+/)\?token=(\S+)", said).groups()
          headers = {"Authorization": f"Bearer {token}"}
          return address, urlopen(Request(address + path, headers=headers), timeout=30)

      async def graph(content):
          if content["n"] == 2:
              raise ValueError("the text of the error")
          if content["n"] < 3:
              return content
          while True:
              address, response = await asyncio.to_thread(read, "api/snapshot")
              snapshot = json.load(response)
              if snapshot["journal"] is None or snapshot["journal"]["answered"] == 2:
                  return {"address": address, "snapshot": snapshot}
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3}
      """

  Scenario Outline: A run <how> has its page while it lasts, and not after it
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl -j 1 --live <options>"
    Then the exit status is 1
    And the page that line 3 has seen had 1 ok, 1 failed with <text>, and itself in flight
    And its journal is <journal>
    And nothing answers at the address of the page any more

    Examples:
      | how                            | options                             | text                  | journal             |
      | without a journal              |                                     | no text               | none                |
      | without a journal, and content | --live-content                      | the text of the error | none                |
      | with a journal                 | --journal run.sqlite --live 0       | no text               | that with 2 answers |

  Scenario: A port that is in use is one error at the start, and the output is left as it was
    Given the file "out.jsonl"
      """
      earlier
      """
    And a port that is in use
    When I run with that port "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --live {port}"
    Then the exit status is 2
    And standard error is one line that says "cannot serve the live page on 127.0.0.1:", "in use" and "address of this machine"
    And "out.jsonl" still says "earlier"

  Scenario Outline: <line> is refused
    When I run "rxlanggraph <line>"
    Then the exit status is 2
    And standard error says "<says>"

    Examples:
      | line                                                  | says                    |
      | run graphs.py:graph -i in.jsonl --live here           | is not an address       |
      | run graphs.py:graph -i in.jsonl --live-content        | needs --live            |
      | run graphs.py:graph -i in.jsonl --live 192.0.2.1:0    | cannot serve            |
      | run graphs.py:graph -i in.jsonl --live a,b:0          | cannot serve the live page on a,b:0 |
      | live nothing.sqlite                                   | is not a journal        |
      | live in.jsonl                                         | cannot be read as SQLite |
      | live nothing.sqlite --address x                       | --address               |

  Scenario: A token that is too short is refused without showing it
    Given the environment has RXLANGGRAPH_LIVE_TOKEN as "hunter2"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl --live"
    Then the exit status is 2
    And standard error is one line that says "RXLANGGRAPH_LIVE_TOKEN", "16 or more" and "is set"

  Scenario: Without the extra --live is refused with the name of the extra
    Given what serves the page is not installed
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl --live"
    Then the exit status is 2
    And standard error is one line that says "sse-starlette", "pip install" and "rxlanggraph[live]"

  Scenario: A run is cancelled from the page of a command, and Ctrl-C ends both
    Given the file "waiting.py"
      """
      import asyncio

      async def graph(content):
          await asyncio.sleep(0 if content["n"] == 1 else 3600)
          return content
      """
    When "rxlanggraph run waiting.py:graph -i in.jsonl -o out.jsonl --live" is started with a token of the environment
    And line 2 is cancelled from the page
    Then the page has line 1 as ok and line 2 as cancelled, while line 3 is in flight
    And after two times Ctrl-C it has ended with status 130, the stream of its page too

  Scenario Outline: With 128 descriptors, two hundred clients that <do> keep no other from the page
    Given the file "waiting.py"
      """
      import asyncio

      async def graph(content):
          await asyncio.sleep(3600)
      """
    When "rxlanggraph run waiting.py:graph -i in.jsonl -o out.jsonl --live" is started with 128 descriptors
    And 200 clients without the token <do>
    Then its page answers, and lets a client listen

    Examples:
      | do                                 |
      | connect                            |
      | send half a header                 |
      | send half a body                   |
      | are refused, and keep a connection |

  Scenario: The page of a journal shows its progress by worker, until Ctrl-C
    Given a journal "run.sqlite" whose 2 workers have 3 messages in flight, and 2 failures
    When "rxlanggraph live run.sqlite" is started with a token of the environment
    Then its page has the 3 messages by worker, and the failures by kind
    When the rest is answered
    Then the stream of its page ends, as the run has
    And after Ctrl-C it has ended with status 130, and nothing answers at its address

  Scenario: A server with an open page ends when it is told to
    Given a process of its own that serves a page with uvicorn
    When a client listens there, and the process gets SIGTERM
    Then the client's stream ends, and the process within seconds

  @valkey
  Scenario: A journal whose server is away keeps its page, which says so until it is back
    Given a Valkey with the journal of a run
    When its page is watched, and the server stops
    Then the page says unreachable, with what it knew
    When the server is back
    Then the page ends as the run has
