Feature: A message has a role and a content, cannot be changed, and goes to LangChain and back

  Scenario Outline: <call> is refused
    When a message is made by <call>
    Then <error> is raised, which says "<words>"

    Examples:
      | call                                                  | error                | words                                       |
      | Message('boss', 'x')                                  | InvalidArgumentError | user, assistant, tool or system, not 'boss' |
      | Message(['user'], 'x')                                | InvalidArgumentError | not ['user']                                |
      | Message('User', 'x')                                  | InvalidArgumentError | not 'User'                                  |
      | Message('user', 5)                                    | InvalidTypeError     | text or a list of content blocks, not 5     |
      | Message('user', [5])                                  | InvalidTypeError     | not [5]                                     |
      | Message('user', 'x', tool_calls=[CALL])               | InvalidArgumentError | not to one of the user                      |
      | Message('user', 'x', tool_call_id='1')                | InvalidArgumentError | not to one of the user                      |
      | Message('assistant', 'x', tool_name='t')              | InvalidArgumentError | not to one of the assistant                 |
      | Message('assistant', 'x', tool_calls=5)               | InvalidArgumentError | a name, args and an id                      |
      | Message('assistant', 'x', tool_calls=['t'])           | InvalidArgumentError | a name, args and an id                      |
      | Message('assistant', 'x', tool_calls=[{'name': 't'}]) | InvalidArgumentError | unlike those in                             |
      | Message('tool', 'x', tool_call_id=5)                  | InvalidTypeError     | tool_call_id must be a string, not 5        |
      | Message('tool', 'x', tool_name=5)                     | InvalidTypeError     | tool_name must be a string, not 5           |
      | Message('user', 'x', id=None)                         | InvalidTypeError     | id must be a string, not None               |
      | Message.of(5)                                         | InvalidTypeError     | a mapping or text, not 5                    |
      | Message.of({'role': 'boss', 'content': 'x'})          | InvalidArgumentError | user, assistant, tool or system             |
      | Message.of({'content': 'x'})                          | InvalidArgumentError | is not a message                            |
      | Message.of({'role': 'user'})                          | InvalidArgumentError | is not a message                            |
      | Message.of(FunctionMessage('x', name='f'))            | InvalidArgumentError | a FunctionMessage has no role here          |
      | from_langchain(['x'])                                 | InvalidTypeError     | a LangChain message is needed               |

  Scenario Outline: <what> is refused by a memory: it could not be read afterwards
    When a message is made by <call>
    Then <error> is raised, which says "<words>"
    And the error is short enough to be read

    Examples:
      | what                       | call                                             | error                | words                        |
      | What cannot be copied      | Message('user', [{'a': LOCK}])                   | InvalidTypeError     | a list of content blocks     |
      | What is too deep           | Message('user', [{'a': DEEP}])                   | InvalidTypeError     | a list of content blocks     |
      | A call that is too deep    | Message('assistant', '', tool_calls=[DEEP_CALL]) | InvalidArgumentError | a name, args and an id       |
      | A call with a wrong id     | Message('assistant', '', tool_calls=[{**CALL, 'id': ['c']}]) | InvalidArgumentError | a name, args and an id |
      | What is huge and wrong     | Message.of(HUGE)                                 | InvalidTypeError     | a mapping or text, not b'xx  |
      | What cannot even be shown  | Message.of(Unshown())                            | InvalidTypeError     | not <Unshown instance        |
      | A role that is not shown   | Message(Unshown(), 'x')                          | InvalidArgumentError | not <Unshown instance        |
      | An extra that is none      | Message('user', 'x', extra=5)                    | InvalidArgumentError | fields of LangChain's        |
      | An extra of other messages | Message('user', 'x', extra={'type': 'ai'})       | InvalidArgumentError | fields of LangChain's        |
      | An extra like a lock       | Message('user', 'x', extra={'a': LOCK})          | InvalidArgumentError | can be copied                |

  Scenario Outline: <thing> is read as a message
    When a message is made by Message.of(<thing>)
    Then it has the role <role> and the content "<content>"

    Examples:
      | thing                                                         | role      | content |
      | 'hello'                                                       | user      | hello   |
      | Message('tool', 'hello')                                      | tool      | hello   |
      | HumanMessage('hello')                                         | user      | hello   |
      | AIMessageChunk('hello')                                       | assistant | hello   |
      | {'role': 'user', 'content': 'hello'}                          | user      | hello   |
      | {'role': 'assistant', 'content': None, 'tool_calls': [CALL]}  | assistant |         |
      | {'role': 'tool', 'content': 'hello'}                          | tool      | hello   |
      | {'role': 'tool', 'content': 'hello', 'tool_name': 't'}        | tool      | hello   |
      | {'type': 'human', 'content': 'hello'}                         | user      | hello   |
      | AIMessage('hello').model_dump()                               | assistant | hello   |
      | AIMessage('hello').to_json()                                  | assistant | hello   |

  Scenario Outline: <message> is the same there and back
    When LangChain's <message> becomes a message, and LangChain's again
    Then it is as it was

    Examples:
      | message                                                                                |
      | HumanMessage('x', id='1', name='bob')                                                  |
      | HumanMessage([{'type': 'text', 'text': 'x'}], id='1')                                  |
      | SystemMessage('x', id='1', additional_kwargs={'__openai_role__': 'developer'})         |
      | AIMessage('x', id='1', tool_calls=[CALL], usage_metadata=USAGE)                        |
      | AIMessage('x', id='1', additional_kwargs={'signature': 'abc'})                         |
      | AIMessage('', id='1', invalid_tool_calls=[BROKEN])                                     |
      | ToolMessage('x', id='1', tool_call_id='c', name='t', status='error', artifact=LOCK)    |

  Scenario Outline: <message> is the same in LangChain and back
    When <message> becomes LangChain's, and a message again
    Then it is as it was

    Examples:
      | message                                                  |
      | Message('user', 'x')                                     |
      | Message('user', [{'type': 'text', 'text': 'x'}, 'y'])    |
      | Message('assistant', 'x', tool_calls=[CALL])             |
      | Message('assistant', 'x', tool_calls=[READ_ONLY_CALL])   |
      | Message('tool', 'x', tool_call_id='c', tool_name='t')    |
      | Message('tool', 'x')                                     |
      | Message('system', 'x')                                   |

  Scenario: Tool calls in OpenAI's form become LangChain's, and those that are not JSON become invalid ones
    When an assistant's message with a call of OpenAI's and a broken one becomes LangChain's
    Then it has one tool call with its arguments, and one invalid one

  Scenario: A message copies mutable parts, and cannot be changed
    Then neither the list it was made from, nor a LangChain message made from it, changes it
    And no field of it can be set

  Scenario Outline: A message survives <way>, and its id is its hash
    Then a message with tool calls survives <way>

    Examples:
      | way      |
      | pickle   |
      | deepcopy |
