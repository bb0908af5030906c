@once
Feature: The command serves the metrics of its run, for as long as it lasts

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio, os, re, sys
      from urllib.request import urlopen

      def read(query=""):
          url = re.search(r"http://\S+", sys.stderr.buffer.getvalue().decode())[0]
          return url, urlopen(url + query, timeout=30).read().decode()

      async def graph(content):
          if content["n"] == 2:
              raise ValueError("no")
          if content["n"] < 3:
              return content
          url, metrics = await asyncio.to_thread(read)
          lines = [line for line in metrics.splitlines() if line[0] != "#"]
          known = dict(line.rsplit(" ", 1) for line in lines)
          return {"url": url, **{name: known.get(name) for name in content["names"]}}
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      {"n": 3, "names": ["rxlanggraph_runs_total{graph=\"graph\",status=\"ok\"}", "rxlanggraph_runs_total{graph=\"graph\",status=\"error\"}", "rxlanggraph_in_flight{graph=\"graph\"}"]}
      """

  Scenario Outline: A run <how> has its metrics read while it lasts, and not after it
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl -j 1 --metrics 0 <options>"
    Then the exit status is 1
    And the metrics that line 3 has read are 1 ok, 1 error and 1 in flight
    And nothing answers at their address any more

    Examples:
      | how               | options              |
      | without a journal |                      |
      | with a journal    | --journal run.sqlite |

  Scenario: A run with a journal tells how many lines it has claimed
    Given the file "in.jsonl"
      """
      {"n": 1}
      {"n": 1}
      {"n": 3, "names": ["rxlanggraph_claims_total{queue=\"lines\"}"]}
      """
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl -j 1 --metrics 0 --journal run.sqlite"
    Then the exit status is 0
    And the metrics that line 3 has read are 3 claims

  Scenario: A scrape that asks for one metric by its name gets that one
    Given the file "asking.py"
      """
      import asyncio
      from graphs import read

      async def asking(content):
          return (await asyncio.to_thread(read, "?name[]=rxlanggraph_in_flight"))[1]
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run asking.py:asking -i in.jsonl -o out.jsonl --metrics 0"
    Then the exit status is 0
    And line 1 has read the value 1.0 of "rxlanggraph_in_flight", and no other metric

  Scenario: Clients that leave in the middle of their request write nothing to standard error
    Given the file "leaving.py"
      """
      import asyncio, socket, struct, threading
      from urllib.parse import urlsplit
      from graphs import read

      def leave():
          address = urlsplit(read()[0])
          for _ in range(50):
              with socket.create_connection((address.hostname, address.port)) as client:
                  client.sendall(b"not HTTP\r\n\r\n")
                  client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
          read()
          for thread in threading.enumerate():
              if "process_request" in thread.name:
                  thread.join(30)

      async def leaving(content):
          await asyncio.to_thread(leave)
      """
    When I run "rxlanggraph run leaving.py:leaving -i in.jsonl -o out.jsonl -j 1 --metrics 0"
    Then the exit status is 0
    And standard error has no traceback

  Scenario: Where OpenTelemetry's SDK is disabled, the metrics are served all the same
    Given the environment variable "OTEL_SDK_DISABLED" is "true"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl -j 1 --metrics 0"
    Then the exit status is 1
    And the metrics that line 3 has read are 1 ok, 1 error and 1 in flight

  Scenario: A port that is in use is one error at the start, and the output is left as it was
    Given the file "out.jsonl"
      """
      earlier
      """
    And a port that is in use
    When I run with that port "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --metrics {port}"
    Then the exit status is 2
    And standard error is one line that says "cannot serve metrics on 127.0.0.1:", "in use" and "--metrics"
    And "out.jsonl" still says "earlier"

  Scenario Outline: <address> is refused as an address
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl --metrics <address>"
    Then the exit status is 2
    And standard error says "<says>"

    Examples:
      | address         | says               |
      | here            | is not an address  |
      | 127.0.0.1:70000 | is not an address  |
      | 127.0.0.1:      | is not an address  |
      | 192.0.2.1:0     | cannot serve       |
      | a..b:0          | cannot serve       |

  Scenario: Without Prometheus's client --metrics is refused with the extra that brings it
    Given the client of Prometheus is not installed
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl --metrics 0"
    Then the exit status is 2
    And standard error is one line that says "--metrics", "not installed" and "rxlanggraph[metrics]"
