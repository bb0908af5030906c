@once
Feature: The command exports the traces of its run, and those of attempts at a line are linked

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio, os, sys
      from opentelemetry import trace

      async def waiting(content):
          if not os.path.exists("mended"):
              print("started", file=sys.stderr, flush=True)
              await asyncio.Event().wait()

      async def graph(content):
          with trace.get_tracer("graphs").start_as_current_span("inside"):
              return content["n"]

      async def divide(content):
          return 12 // content["n"] if not os.path.exists("mended") else "mended"

      async def deadly(content):
          if content["n"] == 0 and not os.path.exists("mended"):
              os._exit(9)
          return content["n"]
      """
    And the file "own.py"
      """
      from opentelemetry import trace
      from opentelemetry.sdk.trace import TracerProvider
      from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

      from graphs import graph

      provider = TracerProvider()
      with open("spans", "w") as spans:
          pass
      class Exporter(ConsoleSpanExporter):
          def export(self, spans):
              with open("spans", "a") as file:
                  file.writelines(f"{span.name}\n" for span in spans)

      provider.add_span_processor(SimpleSpanProcessor(Exporter()))
      trace.set_tracer_provider(provider)
      """
    And the file "in.jsonl"
      """
      {"n": 0}
      """
    And a receiver of OTLP, which OTEL_EXPORTER_OTLP_ENDPOINT names

  Scenario: The spans of a run and of its graph's own code are exported, under the name of the command
    When "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces" runs in a process of its own
    Then the exit status is 0
    And these spans have been received, of the service "rxlanggraph"
      """
      message graph
        invoke_workflow graph
          inside
      """

  Scenario: The service has the name that the environment gives it
    Given the environment variable "OTEL_SERVICE_NAME" is "survey"
    When "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces" runs in a process of its own
    Then these spans have been received, of the service "survey"
      """
      message graph
        invoke_workflow graph
          inside
      """

  Scenario: No content is exported, unless the environment asks for it in OpenTelemetry's way
    When "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --traces" runs in a process of its own
    Then "ZeroDivisionError" is in the spans that have been received, and "division" is not
    Given the environment variable "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" is "true"
    When "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --traces" runs in a process of its own
    Then "division" is in the spans that have been received

  Scenario: A provider that the graph's code has set up is used as it is
    When "rxlanggraph run own.py:graph -i in.jsonl -o out.jsonl --traces" runs in a process of its own
    Then the exit status is 0
    And "spans" has the lines "inside, invoke_workflow graph, message graph"
    And no span has been received

  Scenario: Each attempt at a line that is resumed is linked to the first one
    When "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --traces" runs in a process of its own
    And "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --traces --resume-failed" runs in a process of its own
    And the graph is mended
    And "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --traces --resume-failed" runs in a process of its own
    Then the exit status is 0
    And 3 messages have been received, of which the later ones are linked to the first
    And the journal "j" keeps no trace

  Scenario: A line whose worker was killed is linked to the attempt that it died of
    When "rxlanggraph run graphs.py:deadly -i in.jsonl -o out.jsonl --journal j --lease 0.3 --traces" runs in a process of its own
    Then the exit status is 9
    And the journal "j" keeps the trace of line 1
    When the graph is mended
    And "rxlanggraph run graphs.py:deadly -i in.jsonl -o out.jsonl --journal j --lease 0.3 --traces --resume" runs in a process of its own
    Then the exit status is 0
    And 1 message has been received, which is linked to the trace that was kept
    And the journal "j" keeps no trace

  Scenario: A line that was given back as its process ended is linked to its first attempt
    When "rxlanggraph run graphs.py:waiting -i in.jsonl -o out.jsonl --journal j --traces" is interrupted twice
    Then the exit status is 130
    When the graph is mended
    And "rxlanggraph run graphs.py:waiting -i in.jsonl -o out.jsonl --journal j --traces --resume" runs in a process of its own
    Then the exit status is 0
    And 2 messages have been received, of which the later ones are linked to the first
    And the journal "j" keeps no trace

  Scenario: A journal that was begun with traces is continued without, and the other way round
    When "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --traces" runs in a process of its own
    And "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --resume-failed" runs in a process of its own
    And the graph is mended
    And "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j --traces --resume-failed" runs in a process of its own
    Then the exit status is 0
    And 2 messages have been received, of which the later ones are linked to the first

  Scenario: Without --traces a journal keeps none
    When "rxlanggraph run graphs.py:divide -i in.jsonl -o out.jsonl --journal j" runs in a process of its own
    Then the exit status is 1
    And the journal "j" keeps no trace
    And no span has been received

  Scenario: A thousand lines leave no trace in the journal
    Given 1000 lines of 10 threads in "many.jsonl"
    And the environment variable "OTEL_BSP_MAX_QUEUE_SIZE" is "100000"
    When "rxlanggraph run graphs.py:graph -i many.jsonl -o out.jsonl --journal j --traces" runs in a process of its own
    Then the exit status is 0
    And 1000 messages have been received
    And the journal "j" keeps no trace

  Scenario: A collector that is not there costs no line
    Given the environment variable "OTEL_EXPORTER_OTLP_ENDPOINT" is "http://127.0.0.1:9"
    And the environment variable "OTEL_EXPORTER_OTLP_TIMEOUT" is "1"
    When "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces" runs in a process of its own
    Then the exit status is 0
    And "out.jsonl" has 1 line

  Scenario: A collector that never answers holds up the end of the command once, not for each batch
    Given 1000 lines of 10 threads in "many.jsonl"
    And a collector that never answers, which OTEL_EXPORTER_OTLP_ENDPOINT names
    And the environment variable "OTEL_EXPORTER_OTLP_TIMEOUT" is "2"
    When "rxlanggraph run graphs.py:graph -i many.jsonl -o out.jsonl --traces" runs in a process of its own
    Then the exit status is 0
    And the collector was asked at most twice

  Scenario Outline: A span processor of the graph's own that raises in <method> costs no line
    Given the file "raising.py"
      """
      from opentelemetry import trace
      from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

      async def graph(content):
          return content

      def fail(*args, **options):
          raise RuntimeError("the processor's own")

      processor, provider = SpanProcessor(), TracerProvider()
      processor.<method> = fail
      provider.add_span_processor(processor)
      trace.set_tracer_provider(provider)
      """
    When "rxlanggraph run raising.py:graph -i in.jsonl -o out.jsonl --traces --journal j" runs in a process of its own
    Then the exit status is 0
    And "out.jsonl" has 1 line
    And standard error says "the processor's own"

    Examples:
      | method      |
      | on_start    |
      | on_end      |
      | force_flush |

  Scenario Outline: A value that the SDK refuses is one error at the start: <variable>
    Given the environment variable "<variable>" is "<value>"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces"
    Then the exit status is 2
    And standard error is one line that says "--traces cannot be set up", "<says>" and "OTEL_"
    And there is no file "out.jsonl"

    Examples:
      | variable                        | value | says                            |
      | OTEL_BSP_MAX_QUEUE_SIZE         | 1     | max_queue_size                  |
      | OTEL_BSP_SCHEDULE_DELAY         | -1    | schedule_delay_millis           |
      | OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT | many  | OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT |

  Scenario: A tracer provider that does not exist is an error at the start, too
    Given the environment variable "OTEL_PYTHON_TRACER_PROVIDER" is "other"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces"
    Then the exit status is 2
    And standard error says "--traces cannot be set up, because of StopIteration()"

  Scenario: Where OpenTelemetry is disabled the command says that nothing is exported
    Given the environment variable "OTEL_SDK_DISABLED" is "true"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces"
    Then the exit status is 0
    And standard error says "--traces exports nothing, because OTEL_SDK_DISABLED is true"
    And no span has been received

  Scenario Outline: Another exporter is refused: <variable>
    Given the environment variable "<variable>" is "<value>"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces"
    Then the exit status is 2
    And standard error is one line that says "--traces", "<variable>" and "opentelemetry-instrument"

    Examples:
      | variable                           | value   |
      | OTEL_TRACES_EXPORTER               | console |
      | OTEL_TRACES_EXPORTER               | none    |
      | OTEL_EXPORTER_OTLP_PROTOCOL        | grpc    |
      | OTEL_EXPORTER_OTLP_TRACES_PROTOCOL | grpc    |

  Scenario: Without the SDK --traces is refused with the extra that brings it
    Given the exporter for OTLP is not installed
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --traces"
    Then the exit status is 2
    And standard error is one line that says "--traces", "not installed" and "rxlanggraph[traces]"
