@once
Feature: The command knows LangGraph projects: langgraph.json, .env, and what makes a graph

  A graph is run by its name in langgraph.json. What is wrong in the user's files is one error before
  the first line, which names the place and the remedy.

  Background:
    Given a folder with the file "langgraph.json"
      """
      {
        "dependencies": [".", "./lib", "langchain-nowhere"],
        "graphs": {
          "agent": "./app/agents.py:graph",
          "builder": "./app/agents.py:builder",
          "made": {"path": "./app/agents.py:make_graph", "description": "by a factory"},
          "module": "app.agents:graph",
          "awaited": "./app/agents.py:make_async",
          "configured": "./app/agents.py:make_configured",
          "entered": "./app/agents.py:entered",
          "async_entered": "./app/agents.py:async_entered",
          "gone": "./app/agents.py:nothing",
          "no_file": "./app/none.py:graph",
          "number": "./app/agents.py:number",
          "returns_number": "./app/agents.py:make_number",
          "fails": "./app/agents.py:make_error",
          "asks_much": "./app/agents.py:make_of_three",
          "asks_runtime": "./app/agents.py:make_with_runtime",
          "by_position": "./app/agents.py:make_by_position",
          "left_badly": "./app/agents.py:left_badly",
          "needs_module": "./app/needs_module.py:graph",
          "needs_variable": "./app/needs_variable.py:graph",
          "script": "./app/agent.ts:graph",
          "plain": "./app/plain.py:make_graph",
          "of_content": "./app/plain.py:double"
        },
        "env": ".env",
        "python_version": "3.12"
      }
      """
    And the file ".env"
      """
      # of the project
      GREETING=hello
      WHOM="${GREETING} world"
      """
    And the file "lib/helper.py"
      """
      FACTOR = 2
      """
    And the file "app/__init__.py"
      """
      """
    And the file "app/needs_module.py"
      """
      import langchain_nowhere
      """
    And the file "app/needs_variable.py"
      """
      import os

      KEY = os.environ["NOWHERE_API_KEY"]
      """
    And the file "app/agents.py"
      """
      import asyncio, contextlib, os
      from dataclasses import dataclass
      from typing import Any, TypedDict

      from langchain_core.runnables import RunnableConfig
      from langgraph.graph import START, StateGraph
      from langgraph.runtime import Runtime
      from langgraph_sdk.runtime import ServerRuntime
      from helper import FACTOR

      class State(TypedDict, total=False):
          n: int
          text: str
          seen: Any

      @dataclass
      class Context:
          unit: str
          limit: int = 10

      def node(state: State, config: RunnableConfig, runtime: Runtime[Context]) -> State:
          text = os.environ.get("WHOM", "")
          seen = {"context": runtime.context and vars(runtime.context), "tags": config.get("tags"),
                  "depth": config.get("recursion_limit"), "tone": config["configurable"].get("tone")}
          return {"n": state["n"] * FACTOR, "text": text, "seen": seen}

      def built(by="node", **fields):
          def step(state: State) -> State:
              assert asyncio.get_running_loop() is fields.get("loop", asyncio.get_running_loop())
              return {"text": by}
          async def astep(state: State) -> State:
              return step(state)
          return StateGraph(State).add_node("step", astep).add_edge(START, "step")

      builder = StateGraph(State, context_schema=Context).add_node(node).add_edge(START, "node")
      graph = builder.compile()
      number = 7

      def make_graph():
          print("made")
          return built("factory").compile()

      async def make_async():
          await asyncio.sleep(0)
          return built("awaited", loop=asyncio.get_running_loop())

      def make_configured(config: RunnableConfig):
          return built("tone: " + config["configurable"].get("tone", "none")).compile()

      @contextlib.contextmanager
      def entered():
          print("entered")
          yield built("entered").compile()
          print("left")

      @contextlib.asynccontextmanager
      async def async_entered(config: RunnableConfig):
          task = asyncio.current_task()
          print("entered")
          try:
              yield built("async", loop=asyncio.get_running_loop()).compile()
          finally:
              assert asyncio.current_task() is task
              print("left")

      def make_number():
          return 7

      def make_error():
          raise ValueError("no model of that name")

      def make_of_three(a, b, c):
          return graph

      def make_by_position(config: RunnableConfig, /):
          return graph

      @contextlib.contextmanager
      def left_badly():
          yield built("left").compile()
          raise OSError("the model would not let go")

      def make_with_runtime(runtime: ServerRuntime):
          return graph

      """
    And the file "app/plain.py"
      """
      from langgraph.graph import START, StateGraph

      def make_graph():
          return StateGraph(dict).add_node("same", lambda state: state).add_edge(START, "same")

      def make_number():
          return 7

      def lister(config: "RunnableConfig") -> list:
          return []

      def maker(config):
          return config["configurable"]

      def double(content):
          return content["n"] * 2
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 2}
      """

  # -- by name -----------------------------------------------------------------------------------

  Scenario: A graph runs by its name, with the project's folders and environment
    When I run "rxlanggraph run agent -i in.jsonl"
    Then the exit status is 0
    And the output has these records in any order
      | line | status | content.n | content.text |
      | 1    | ok     | 2         | hello world  |
      | 2    | ok     | 4         | hello world  |

  Scenario: The environment of the process has precedence over .env
    Given the environment variable "WHOM" is "somebody"
    When I run "rxlanggraph run agent -i in.jsonl"
    Then the output has these records in any order
      | line | status | content.text |
      | 1    | ok     | somebody     |
      | 2    | ok     | somebody     |

  Scenario: --env-file has precedence over the project's .env, and serves a graph outside of any project
    Given the file "other.env"
      """
      WHOM=others
      """
    When I run "rxlanggraph run agent -i in.jsonl --env-file other.env"
    Then the output has these records in any order
      | line | status | content.text |
      | 1    | ok     | others       |
      | 2    | ok     | others       |
    Given the file "echo.py"
      """
      import os
      HERE = os.environ["WHOM"]
      def graph(content):
          return HERE
      """
    When I run "rxlanggraph run echo.py:graph -i in.jsonl --env-file other.env"
    Then the output has these records in any order
      | line | status | content |
      | 1    | ok     | others  |
      | 2    | ok     | others  |

  Scenario: A project in another folder is named with --project
    Given the file "elsewhere/in.jsonl"
      """
      {"n": 3}
      """
    When I run in "elsewhere" the command "rxlanggraph run agent -i in.jsonl --project ../langgraph.json"
    Then the output has these records in any order
      | line | status | content.n | content.text |
      | 1    | ok     | 6         | hello world  |

  Scenario Outline: The graph <name> is what LangGraph's server would run
    When I run "rxlanggraph run <name> -i in.jsonl -o out.jsonl"
    Then the exit status is 0
    And "out.jsonl" has these records in any order
      | line | status | content.text |
      | 1    | ok     | <text>       |
      | 2    | ok     | <text>       |

    Examples:
      | name          | text        |
      | builder       | hello world |
      | module        | hello world |
      | made          | factory     |
      | awaited       | awaited     |
      | configured    | tone: none  |
      | entered       | entered     |
      | async_entered | async       |

  Scenario Outline: A factory is called once, and its context manager <name> left when the runs have ended
    When I run "rxlanggraph run <name> -i in.jsonl --journal run.sqlite"
    Then the exit status is 0
    And standard error says "entered" once and then "left" once

    Examples:
      | name          |
      | entered       |
      | async_entered |

  Scenario: A context manager that fails when it is left is reported, and the answers are kept
    When I run "rxlanggraph run left_badly -i in.jsonl -o out.jsonl"
    Then the exit status is 0
    And standard error says "leaving its context manager failed: OSError: the model would not let go"
    And "out.jsonl" has these records in any order
      | line | status | content.text |
      | 1    | ok     | left         |
      | 2    | ok     | left         |

  Scenario: A run by name and a run by place are one run of a journal
    When I run "rxlanggraph run plain -i in.jsonl -o out.jsonl --journal run.sqlite"
    And I run "rxlanggraph run app/plain.py:make_graph -i in.jsonl -o out.jsonl --journal run.sqlite --resume"
    Then the exit status is 0
    And the summary says "(0 answered here)" and "read 2: 2 ok"

  Scenario Outline: Without langgraph.json <target> is a factory by its shape
    When I run "rxlanggraph run app/plain.py:<target> -i in.jsonl"
    Then the exit status is 2
    And standard error says "<error>"

    Examples:
      | target      | error                            |
      | make_number | returned 7, which is not a graph |
      | lister      | returned [], which is not a graph |
      | maker       | returned {}, which is not a graph |

  # -- graphs -----------------------------------------------------------------------------------

  Scenario: rxlanggraph graphs lists names and places, without importing anything
    When I run "rxlanggraph graphs"
    Then the exit status is 0
    And the output says "needs_module    app/needs_module.py:graph"
    And the output says "made            app/agents.py:make_graph         by a factory"

  Scenario: rxlanggraph graphs --json has them for programs
    When I run "rxlanggraph graphs --json"
    Then the output as JSON has "app/agents.py:graph" at "graphs.0.place"
    And the output as JSON has "agent" at "graphs.0.name"
    And the output as JSON has "by a factory" at "graphs.2.description"

  # -- arguments of every run ---------------------------------------------------------------------

  Scenario: --context and --config are LangGraph's context and config of every run
    Given the file "config.json"
      """
      {"tags": ["nightly"], "recursion_limit": 7, "configurable": {"tone": "dry"}}
      """
    And the file "context.json"
      """
      {"unit": "km"}
      """
    When I run "rxlanggraph run agent -i in.jsonl --config config.json --context context.json --context limit=3"
    Then the output has these records in any order
      | line | status | content.seen                                                                                  |
      | 1    | ok     | {"context": {"unit": "km", "limit": 3}, "tags": ["nightly"], "depth": 7, "tone": "dry"} |
      | 2    | ok     | {"context": {"unit": "km", "limit": 3}, "tags": ["nightly"], "depth": 7, "tone": "dry"} |
    When I run "rxlanggraph run agent -i in.jsonl --config config.json --context unit=mi --journal run.sqlite"
    Then the output has these records in any order
      | line | status | content.seen.context         | content.seen.tone |
      | 1    | ok     | {"unit": "mi", "limit": 10} | dry               |
      | 2    | ok     | {"unit": "mi", "limit": 10} | dry               |

  Scenario Outline: The files of --context and --config may be <format>
    Given the file "config.<suffix>" with the bytes
      """
      <config>
      """
    And the file "context.<suffix>" with the bytes
      """
      <context>
      """
    When I run "rxlanggraph run agent -i in.jsonl --config config.<suffix> --context context.<suffix>"
    Then the output has these records in any order
      | line | status | content.seen                                                                                 |
      | 1    | ok     | {"context": {"unit": "2026-11-24", "limit": 3}, "tags": ["a", "b"], "depth": 7, "tone": "dry"} |
      | 2    | ok     | {"context": {"unit": "2026-11-24", "limit": 3}, "tags": ["a", "b"], "depth": 7, "tone": "dry"} |

    Examples:
      | format | suffix | config                                                                            | context                        |
      | YAML   | yaml   | {tags: &t [a, b], recursion_limit: 7, metadata: {of: *t}, configurable: {tone: dry}} | {unit: 2026-11-24, limit: 3}   |
      | YAML   | YML    | {tags: [a, b], recursion_limit: 7, configurable: {<<: {tone: dry}}}               | {"unit": "2026-11-24", "limit": 3} |
      | TOML   | toml   | tags = ["a", "b"]\nrecursion_limit = 7\nconfigurable.tone = "dry"                 | unit = 2026-11-24\nlimit = 3   |

  Scenario: A factory gets --config
    Given the file "config.json"
      """
      {"configurable": {"tone": "dry"}}
      """
    When I run "rxlanggraph run configured -i in.jsonl --config config.json"
    Then the output has these records in any order
      | line | status | content.text |
      | 1    | ok     | tone: dry    |
      | 2    | ok     | tone: dry    |

  # -- what is wrong --------------------------------------------------------------------------------

  Scenario Outline: <target> is one error at the start, which names the place: <place>
    When I run "rxlanggraph run <target> -i in.jsonl -o out.jsonl"
    Then the exit status is 2
    And standard error is one line that says "<place>", "<problem>" and "<remedy>"

    Examples:
      | target         | place                            | problem                             | remedy                          |
      | agnet          | langgraph.json                   | no graph 'agnet'                    | did you mean agent              |
      | gone           | langgraph.json, graphs.gone      | has no 'nothing'                    | did you mean graph              |
      | no_file        | langgraph.json, graphs.no_file   | no file 'app/none.py'               | give the path                   |
      | number         | langgraph.json, graphs.number    | is not a graph                      | pass a compiled LangGraph graph |
      | returns_number | langgraph.json, graphs.returns_n | returned 7, which is not a graph    | return a compiled graph         |
      | fails          | app/agents.py, line              | ValueError: no model of that name   | check that it returns a graph   |
      | asks_much      | langgraph.json, graphs.asks_much | takes 3 parameters                  | config                          |
      | asks_runtime   | langgraph.json, graphs.asks_run  | ServerRuntime                       | RunnableConfig                  |
      | by_position    | langgraph.json, graphs.by_position | positional-only                     | by name                         |
      | needs_module   | app/needs_module.py, line 1      | No module named 'langchain_nowhere' | pip install langchain-nowhere   |
      | needs_variable | app/needs_variable.py, line 3    | NOWHERE_API_KEY is not set          | .env                            |
      | of_content     | langgraph.json, graphs.of_content | KeyError: 'n'                      | by its place, app/plain.py:double |
      | script         | langgraph.json, graphs.script    | JavaScript                          | Python                          |

  Scenario Outline: langgraph.json with <what> is one error that names the place
    Given the file "langgraph.json"
      """
      <content>
      """
    When I run "rxlanggraph run agent -i in.jsonl -o out.jsonl"
    Then the exit status is 2
    And standard error is one line that says "langgraph.json", "<problem>" and "<remedy>"

    Examples:
      | what                | content                                                     | problem            | remedy                      |
      | a missing comma     | {"graphs": {} "env": ""}                                    | line 1, column 15  | JSON                        |
      | no object           | []                                                          | not an object      | {"graphs":                  |
      | no graphs           | {"dependencies": []}                                        | graphs             | add                         |
      | empty graphs        | {"graphs": {}}                                              | no graph 'agent'   | add                         |
      | a number as a place | {"graphs": {"agent": 7}}                                    | graphs.agent       | path/to/file.py:graph       |
      | a place without :   | {"graphs": {"agent": "app.agents"}}                         | graphs.agent       | path/to/file.py:graph       |
      | no place            | {"graphs": {"agent": {"description": "x"}}}                 | graphs.agent.path  | path/to/file.py:graph       |
      | a missing .env      | {"graphs": {"agent": "./app/agents.py:graph"}, "env": "no"} | env names          | create it                   |
      | a number of graphs  | {"graphs": 7}                                               | graphs: 7 is not an object | path/to/file.py:graph |
      | one dependency      | {"graphs": {"agent": "./app/agents.py:graph"}, "dependencies": "."} | is not a list | list folders and packages |
      | a wrong dependency  | {"graphs": {"agent": "./app/agents.py:graph"}, "dependencies": [7]} | dependencies.0 | name a folder or a package |
      | a wrong env         | {"graphs": {"agent": "./app/agents.py:graph"}, "env": 7}    | env                | name of a file or an object |
      | a number in env     | {"graphs": {"agent": "./app/agents.py:graph"}, "env": {"A": 7}} | env.A          | string                      |
      | a missing folder    | {"graphs": {"agent": "./app/agents.py:graph"}, "dependencies": ["./no"]} | dependencies.0 | folder     |
      | NUL in a place      | {"graphs": {"agent": "./app/a\u0000.py:graph"}}             | graphs.agent       | give the path               |
      | = in the name of a variable | {"graphs": {"agent": "./app/agents.py:graph"}, "env": {"A=B": "x"}} | env: 'A=B' cannot be | correct it |
      | a variable without a name | {"graphs": {"agent": "./app/agents.py:graph"}, "env": {"": "x"}} | env: '' cannot be | correct it |
      | NUL in a variable   | {"graphs": {"agent": "./app/agents.py:graph"}, "env": {"A": "\u0000"}} | env: 'A' cannot be | correct it |
      | half a character in a variable | {"graphs": {"agent": "./app/agents.py:graph"}, "env": {"A": "\ud800"}} | env: 'A' cannot be | correct it |

  Scenario: A line of .env that cannot be read is named
    Given the file ".env"
      """
      GREETING=hello
      what is this
      """
    When I run "rxlanggraph run agent -i in.jsonl"
    Then the exit status is 2
    And standard error is one line that says ".env, line 2", "what is this" and "NAME=value"

  Scenario: Without python-dotenv .env is refused with the extra that brings it
    Given python-dotenv is not installed
    When I run "rxlanggraph run agent -i in.jsonl"
    Then the exit status is 2
    And standard error is one line that says ".env", "python-dotenv" and "rxlanggraph[dotenv]"

  Scenario: Variables may stand in langgraph.json itself
    Given the file "langgraph.json"
      """
      {"graphs": {"agent": "./app/agents.py:graph"}, "dependencies": ["./lib"], "env": {"WHOM": "all"}}
      """
    When I run "rxlanggraph run agent -i in.jsonl"
    Then the output has these records in any order
      | line | status | content.text |
      | 1    | ok     | all          |
      | 2    | ok     | all          |

  Scenario: Without langgraph.json a name is refused with both remedies
    When I run in "lib" the command "rxlanggraph run agent -i ../in.jsonl"
    Then the exit status is 2
    And standard error is one line that says "'agent' does not name a graph", "MODULE_OR_FILE:GRAPH" and "langgraph.json"

  Scenario Outline: <option> that is wrong is one error at the start
    Given the file "config.json"
      """
      <content>
      """
    When I run "rxlanggraph run <graph> -i in.jsonl -o out.jsonl <option>"
    Then the exit status is 2
    And standard error says "<problem>"
    And standard error says "<remedy>"

    Examples:
      | graph                | option                                  | content                           | problem                        | remedy                     |
      | agent                | --config config.json                    | {"tags": "x"}                     | tags                           | config.json                |
      | agent                | --config config.json                    | {"tags": 5}                       | tags is 5                      | a list of strings          |
      | agent                | --config config.json                    | {"recursion": 3}                  | recursion                      | config.json                |
      | agent                | --config config.json                    | {"configurable": [}               | line 1, column 19              | config.json                |
      | agent                | --config config.json                    | [1]                               | config.json                    | an object                  |
      | agent                | --config none.json                      | {}                                | none.json                      | No such file               |
      | agent                | --config none.yaml                      | {}                                | none.yaml                      | No such file               |
      | agent                | --config config.json --journal j.sqlite | {"configurable": {"thread_id": "x"}} | bound to the thread 'x'     | --journal                  |
      | agent                | --context unit                          | {}                                | unit                           | KEY=VALUE                  |
      | agent                | --context config.json                   | [1]                               | config.json                    | an object                  |
      | agent                | --context size=3                        | {}                                | size                           | context_schema             |
      | agent                | --context limit=3                       | {}                                | unit                           | context_schema             |
      | app/plain.py:double  | --context unit=km                       | {}                                | context is passed to           | add it, or leave           |

  Scenario Outline: <What> that is wrong is one error at the start
    Given the file "<file>" with the bytes
      """
      <content>
      """
    When I run "rxlanggraph run agent -i in.jsonl -o out.jsonl <option> <file>"
    Then the exit status is 2
    And standard error is one line that says "<file>", "<problem>" and "<remedy>"

    Examples:
      | What                    | option    | file     | content                            | problem                                            | remedy              |
      | YAML with a syntax error | --config  | c.yaml   | tags: [nightly                     | is not YAML: while parsing a flow sequence         | line 1, column 15   |
      | YAML of two documents   | --config  | c.yml    | tags: []\n---\ntags: []            | another document at line 2, column 1               | write an object     |
      | YAML of a list          | --context | c.yaml   | [1]                                | is YAML, but not an object                         | KEY=VALUE           |
      | Empty YAML              | --context | c.yaml   | # nothing                          | is YAML, but not an object                         | KEY=VALUE           |
      | YAML with a Norwegian key | --context | c.yaml | unit: km\nno: 3                    | the key no is not text, but False                  | line 2, column 1    |
      | YAML with a wrong number | --context | c.yaml  | {unit: km, limit: !!int x}         | invalid literal                                    | line 1, column 19   |
      | YAML with a foreign tag | --context | c.yaml   | unit: !!python/name:os.system x    | could not determine a constructor                  | line 1, column 7    |
      | YAML with bytes         | --context | c.yaml   | unit: !!binary aGk=                | could not determine a constructor                  | line 1, column 7    |
      | YAML that contains itself | --context | c.yaml | unit: &u [*u]                      | Circular reference                                 | KEY=VALUE           |
      | TOML with a syntax error | --config  | c.toml   | tags = [}                          | is not TOML                                        | line 1, column 9    |
      | TOML with a wrong value | --config  | c.toml   | tags = "x"                         | tags is 'x'                                        | a list of strings   |

  Scenario Outline: A graph that was compiled without a name has that of the project: <what>
    Given the file "named.py"
      """
      from typing import TypedDict
      from langgraph.graph import START, StateGraph
      from rxlanggraph.bridge.run import current_run

      class State(TypedDict, total=False):
          n: int
          name: str

      async def look(state):
          return {"name": current_run().label.split("'")[1]}

      builder = StateGraph(State).add_node(look).add_edge(START, "look")
      compiled = builder.compile()
      own = builder.compile(name="own")

      def factory():
          return builder.compile()
      """
    And the file "langgraph.json"
      """
      {"graphs": {"desk": "./named.py:<graph>"}}
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      """
    When I run "rxlanggraph run desk -i in.jsonl -o out.jsonl"
    Then "out.jsonl" has these records in any order
      | line | status | content.name |
      | 1    | ok     | <name>       |

    Examples:
      | what                 | graph    | name |
      | compiled             | compiled | desk |
      | not compiled         | builder  | desk |
      | of a factory         | factory  | desk |
      | with a name it keeps | own      | own  |

  # -- real things that a factory opens -------------------------------------------------------------

  Scenario Outline: A factory may open a saver that belongs to the loop of its runs<with>
    Given the file "saved.py"
      """
      import contextlib
      from typing import TypedDict
      from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
      from langgraph.graph import START, StateGraph

      class State(TypedDict, total=False):
          seen: int

      def see(state: State) -> State:
          return {"seen": state.get("seen", 0) + 1}

      @contextlib.asynccontextmanager
      async def graph():
          async with AsyncSqliteSaver.from_conn_string("threads.sqlite") as saver:
              builder = StateGraph(State).add_node(see).add_edge(START, "see")
              yield builder.compile(checkpointer=saver)
          print("closed")
      """
    And the file "in.jsonl"
      """
      {"who": "a"}
      {"who": "b"}
      {"who": "a"}
      """
    When I run "rxlanggraph run saved.py:graph -i in.jsonl --thread-key who -o out.jsonl <options>"
    Then the exit status is 0
    And the output says "closed"
    And "out.jsonl" has these records in any order
      | line | status | thread_id | content.seen |
      | 1    | ok     | a         | 1            |
      | 2    | ok     | b         | 1            |
      | 3    | ok     | a         | 2            |

    Examples:
      | with             | options              |
      |                  |                      |
      | , with a journal | --journal run.sqlite |
