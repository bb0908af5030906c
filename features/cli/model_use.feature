@once
Feature: The command observes the limits of models, and reports what they cost

  Background:
    Given a folder with the file "graphs.py"
      """
      import asyncio
      from typing import TypedDict
      from langchain_core.language_models import BaseChatModel
      from langchain_core.messages import AIMessage
      from langchain_core.outputs import ChatGeneration, ChatResult
      from langgraph.graph import START, StateGraph

      class Refused(Exception):
          status_code = 429

      class Model(BaseChatModel):
          model: str = "small"

          @property
          def _llm_type(self):
              return "fake"

          def _generate(self, *_, **__):
              raise NotImplementedError

          async def _agenerate(self, messages, *_, **__):
              global active, most, refusals
              active += 1
              most = max(most, active)
              for _ in range(20):
                  await asyncio.sleep(0)
              active -= 1
              if messages[-1].content == "refused" and refusals:
                  refusals -= 1
                  raise Refused("too many")
              usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
              message = AIMessage("well", usage_metadata=usage)
              return ChatResult(generations=[ChatGeneration(message=message)])

      active = most = 0
      refusals = 1
      wrongs = []
      models = {name: Model(model=name) for name in ("small", "large")}

      class State(TypedDict):
          model: str
          text: str
          most: int

      async def ask(state):
          if state["text"] == "wrong":
              wrongs.append(1)
              raise ValueError(f"wrong {len(wrongs)} times")
          await models[state["model"]].ainvoke(state["text"])
          return {"most": most}

      graph = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
      """
    And the file "in.jsonl"
      """
      {"model": "small", "text": "a"}
      {"model": "small", "text": "b"}
      {"model": "large", "text": "c"}
      {"model": "small", "text": "wrong"}
      """
    And the file "prices.json"
      """
      {"small": {"input": 2, "output": 10}, "large": {"input": 20, "output": 100}}
      """

  Scenario Outline: --usage and --prices: the records and the summary have tokens and costs <where>
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --prices prices.json <options>"
    Then the exit status is 1
    And "out.jsonl" has these records in any order
      | line | status | usage |
      | 1    | ok     | {"small": {"calls": 1, "input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 0, "cache_write_tokens": 0, "cost": 0.003, "unpriced": 0}} |
      | 2    | ok     | {"small": {"calls": 1, "input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 0, "cache_write_tokens": 0, "cost": 0.003, "unpriced": 0}} |
      | 3    | ok     | {"large": {"calls": 1, "input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 0, "cache_write_tokens": 0, "cost": 0.03, "unpriced": 0}}  |
      | 4    | error  | null  |
    And the summary says "3 calls of models, 3,000 tokens in, 300 out" and "cost 0.0360"

    Examples:
      | where          | options     |
      | of a file      |             |
      | of a journal   | --journal j |

    @ray
    Examples:
      | where                            | options                                |
      | of a journal, from workers of Ray | --journal j --executor ray --workers 2 |

  Scenario: Without prices there are tokens, and without --usage neither
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --usage"
    Then the summary says "3 calls of models, 3,000 tokens in, 300 out; results" and "read 4"
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl"
    Then "out.jsonl" has these records in any order
      | line | status | usage |
      | 1    | ok     | null  |
      | 2    | ok     | null  |
      | 3    | ok     | null  |
      | 4    | error  | null  |

  Scenario: The status of a journal adds up the usage in its records, at any prices
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --usage --journal j"
    And I run "rxlanggraph status j --usage"
    Then it printed a line with "usage" and "3 calls of models, 3,000 tokens in, 300 out"
    When I run "rxlanggraph status j --prices prices.json"
    Then it printed a line with "usage" and "cost 0.0360"
    And it printed a line with "large" and "1 call of models, 1,000 tokens in, 100 out, cost 0.0300"
    When I run "rxlanggraph status j --prices prices.json --json"
    Then the JSON that it printed has these values
      | key                      | value |
      | usage.total.calls        | 3     |
      | usage.models.small.calls | 2     |

  Scenario: --limit holds for the calls of the model that it names
    Given the file "many.jsonl"
      """
      {"model": "small", "text": "a"}
      {"model": "small", "text": "b"}
      {"model": "small", "text": "c"}
      {"model": "small", "text": "d"}
      {"model": "small", "text": "e"}
      """
    When I run "rxlanggraph run graphs.py:graph -i many.jsonl -o out.jsonl --limit small:concurrency=1,requests=1000/m"
    Then "out.jsonl" has these records in any order
      | line | status | content.most |
      | 1    | ok     | 1            |
      | 2    | ok     | 1            |
      | 3    | ok     | 1            |
      | 4    | ok     | 1            |
      | 5    | ok     | 1            |

  Scenario: The processes of a journal share their limits in it
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl -o out.jsonl --limit requests=1000/m --journal j"
    Then the exit status is 1
    When I run "rxlanggraph state --journal j keys"
    Then it printed a line with "rxlanggraph-limit" and "small"

  Scenario: With --limit, --retries retries what is transient alone
    Given the file "two.jsonl"
      """
      {"model": "small", "text": "refused"}
      {"model": "small", "text": "wrong"}
      """
    When I run "rxlanggraph run graphs.py:graph -i two.jsonl -o out.jsonl --limit requests=1000/m --retries 3"
    Then "out.jsonl" has these records in any order
      | line | status | attempts | error.message |
      | 1    | ok     | 2        | null          |
      | 2    | error  | null     | wrong 1 times |

  Scenario Outline: <Wrong> is refused
    Given the file "wrong.json"
      """
      {"small": {"input": 2}}
      """
    When I run "rxlanggraph run graphs.py:graph -i in.jsonl <options>"
    Then the exit status is 2
    And standard error says "<text>"

    Examples:
      | Wrong                   | options                                    | text                        |
      | A limit without unit    | --limit small:requests=5                   | 'small:requests=5' is not a |
      | A limit of nothing      | --limit small:                             | is not a limit              |
      | An unknown limit        | --limit small:words=5/m                    | is not a limit              |
      | A limit of 0            | --limit small:requests=0/m                 | is not a limit              |
      | Two units               | --limit requests=5/m,tokens=7/h            | with the same period        |
      | Two requests            | --limit requests=5/m,requests=7/m          | is not a limit              |
      | Two limits for a model  | --limit a:requests=5/m --limit a:tokens=7/m | there are two limits for 'a' |
      | No file of prices       | --prices nowhere.json                      | cannot read nowhere.json    |
      | A price without output  | --prices wrong.json                        | must have input and output  |
      | A file that is not JSON | --prices in.jsonl                          | in.jsonl, line 2, column 1, is not JSON |
