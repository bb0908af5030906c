@once
Feature: Options come from the command line, the environment or a settings file, in this order

  Background:
    Given a folder with the file "graphs.py"
      """
      async def divide(content):
          return 12 // content["n"]
      """
    And the file "in.jsonl"
      """
      {"n": 1}
      {"n": 0}
      """
    And the file "rxlanggraph.toml"
      """
      [run]
      input = "in.jsonl"
      output = "from-file.jsonl"
      max-concurrency = 1
      quiet = true
      """

  Scenario: rxlanggraph.toml in the current folder has the options that are left out
    When I run "rxlanggraph run graphs.py:divide"
    Then the exit status is 1
    And standard error is empty
    And "from-file.jsonl" has these records in any order
      | line | status | content |
      | 1    | ok     | 12      |
      | 2    | error  | null    |

  Scenario: The environment has precedence over the file, and the command line over both
    Given the environment variable "RXLANGGRAPH_RUN_OUTPUT" is "from-environment.jsonl"
    When I run "rxlanggraph run graphs.py:divide"
    Then "from-environment.jsonl" has these records in any order
      | line | status |
      | 1    | ok     |
      | 2    | error  |
    When I run "rxlanggraph run graphs.py:divide -o from-line.jsonl"
    Then "from-line.jsonl" has these records in any order
      | line | status |
      | 1    | ok     |
      | 2    | error  |

  Scenario: Another settings file is named with --settings
    Given the file "other.toml"
      """
      [run]
      input = "in.jsonl"
      errors = "errors.jsonl"
      output = "out.jsonl"

      [status]
      json = true
      """
    When I run "rxlanggraph --settings other.toml run graphs.py:divide"
    Then "errors.jsonl" has these records in any order
      | line | status |
      | 2    | error  |

  Scenario Outline: Settings with <what> are one error that names the place
    Given the file "rxlanggraph.toml"
      """
      <content>
      """
    When I run "rxlanggraph run graphs.py:divide -i in.jsonl"
    Then the exit status is 2
    And standard error says "rxlanggraph.toml"
    And standard error says "<problem>"
    And standard error says "<remedy>"

    Examples:
      | what                | content                    | problem                 | remedy                       |
      | an unknown option   | run.max_concurency = 3     | run.max_concurency      | did you mean max-concurrency |
      | an unknown command  | walk.input = "x"           | walk                    | run                          |
      | no table            | run = 3                    | run                     | [run]                        |
      | an error of syntax  | run = [ 1 2 ]              | line 1                  | TOML                         |
      | a wrong value       | run.max-concurrency = "x"  | run.max-concurrency     | not a whole number           |
      | a table for a value | run.timeout = {a = 1}      | run.timeout             | a string or a number         |
      | true for a number   | run.retries = true         | run.retries             | a string or a number         |
      | a number for several | run.context = 3           | run.context             | a table or a list of strings |
      | a number for a flag | run.ordered = 2            | run.ordered             | true or false                |

  Scenario: The options of a group's command are in a table within that of the group
    Given the file "rxlanggraph.toml"
      """
      [state.tasks]
      limit = "x"
      """
    When I run "rxlanggraph state store.sqlite tasks queue"
    Then the exit status is 2
    And standard error says "not a whole number"
    And standard error says "state.tasks.limit in rxlanggraph.toml"

  Scenario: A time may be a number of seconds
    Given the file "rxlanggraph.toml"
      """
      [state.tasks]
      older-than = 30
      """
    When I run "rxlanggraph state store.sqlite tasks queue"
    Then the exit status is 2
    And standard error says "there is no state at store.sqlite"

  Scenario: A wrong value in the environment is named with its variable
    Given the environment variable "RXLANGGRAPH_RUN_RETRIES" is "often"
    When I run "rxlanggraph run graphs.py:divide"
    Then the exit status is 2
    And standard error says "RXLANGGRAPH_RUN_RETRIES"

  Scenario Outline: A variable is named after its option: <variable>
    Given the environment variable "<variable>" is "nonsense"
    When I run "rxlanggraph <command>"
    Then the exit status is 2
    And standard error says "is from the environment variable <variable>"

    Examples:
      | variable                       | command                                |
      | RXLANGGRAPH_DEMO_MESSAGES      | demo                                   |
      | RXLANGGRAPH_STATE_JOURNAL      | state store.sqlite queues              |
      | RXLANGGRAPH_STATE_PURGE_STATE  | state store.sqlite purge q             |

  Scenario: A variable with the version of an image is not taken for --version
    Given the environment variable "RXLANGGRAPH_VERSION" is "0.1.0-slim"
    When I run "rxlanggraph completion bash"
    Then the exit status is 0

  Scenario: A variable that sets no option of the command is named, and stops nothing
    Given the environment variable "RXLANGGRAPH_RUN_MAX_CONCURENCY" is "4"
    And the environment variable "RXLANGGRAPH_RUN_SERVICE_HOST" is "10.0.0.1"
    And the environment variable "RXLANGGRAPH_STATE_NAMESPCE" is "other"
    When I run "rxlanggraph run graphs.py:divide"
    Then the exit status is 1
    And standard error is
      """
      rxlanggraph: RXLANGGRAPH_RUN_MAX_CONCURENCY is not the variable of an option of 'run'; did you mean RXLANGGRAPH_RUN_MAX_CONCURRENCY?
      rxlanggraph: RXLANGGRAPH_RUN_SERVICE_HOST is not the variable of an option of 'run'
      """

  Scenario Outline: Completion for <shell> prints a script
    When I run "rxlanggraph completion <shell>"
    Then the exit status is 0
    And the output says "_RXLANGGRAPH_COMPLETE=<shell>_complete"

    Examples:
      | shell |
      | bash  |
      | zsh   |
      | fish  |

  Scenario Outline: "<words>" is completed with <found>
    Given the file "langgraph.json"
      """
      {"graphs": {"agent": "./a.py:graph", "adder": "./a.py:adder", "other": "./a.py:other"}}
      """
    Then the words "<words>" are completed with "<found>"

    Examples:
      | words                            | found                                  |
      | rxlanggraph gr                   | graphs                                 |
      | rxlanggraph run a                | agent adder                            |
      | rxlanggraph run agent --max-c    | --max-concurrency                      |
      | rxlanggraph run agent --format c | csv                                    |
