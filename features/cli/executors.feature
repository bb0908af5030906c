@once
Feature: rxlanggraph run calls its graph in worker processes, if it is asked to

  Background:
    Given a folder with the file "placed.py"
      """
      import contextlib, os, sys
      from typing import TypedDict
      from langgraph.checkpoint.memory import InMemorySaver
      from langgraph.graph import START, StateGraph

      def ray_worker():
          return sys.modules["ray"].get_runtime_context().worker.mode == 1

      class State(TypedDict, total=False):
          n: int
          elsewhere: bool

      async def node(state: State) -> State:
          return {"elsewhere": "ray" in sys.modules and ray_worker()}

      builder = StateGraph(State).add_node(node).add_edge(START, "node")
      graph = builder.compile()
      remembering = builder.compile(checkpointer=InMemorySaver())

      @contextlib.asynccontextmanager
      async def make():
          yield builder.compile()

      def function(content):
          return {**content, "elsewhere": "ray" in sys.modules and ray_worker()}
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """

  @ray
  Scenario Outline: A graph is called elsewhere, whatever names it: <graph>
    When I run "rxlanggraph run placed.py:<graph> --input in.jsonl --output out.jsonl --executor ray --workers 1 <journal>"
    Then the exit status is 0
    And "out.jsonl" has these records in any order
      | line | status | content                     | thread_id | error |
      | 1    | ok     | {"n": 1, "elsewhere": true} | null      | null  |
      | 2    | ok     | {"n": 2, "elsewhere": true} | null      | null  |

    Examples:
      | graph    | journal              |
      | graph    |                      |
      | make     |                      |
      | function |                      |
      | graph    | --journal run.sqlite |

  @ray
  Scenario Outline: Refused before the first line: <options>
    When I run "rxlanggraph run placed.py:<graph> --input in.jsonl <options>"
    Then the exit status is 2
    And standard error says "<words>"

    Examples:
      | graph       | options                                         | words                        |
      | graph       | --workers 2                                     | --workers needs --executor   |
      | graph       | --address auto                                  | --address needs --executor   |
      | graph       | --executor ray --address ray://there:10001      | an address of Ray Client     |
      | remembering | --executor ray --workers 2 --thread-key n       | InMemorySaver                |
