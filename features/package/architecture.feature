@once
Feature: The package keeps to its map

  Scenario: Imports point one way, as in the maps of the packages' docstrings
    Then no module imports, directly or through others, one below it on the map

  Scenario: There are no circular imports, not even for types alone
    Then the modules can be put in an order in which each imports only earlier ones

  Scenario Outline: The check of the map detects <what>
    Given an invented package where <what>
    Then the check of the map complains

    Examples:
      | what                                     |
      | errors imports registry                  |
      | registry imports bridge through a helper |
      | two helpers import each other            |

  Scenario: Every layer of the map exists, and every module is on it
    Then each name on the map is a module or a package, and no module is missing

  Scenario: The registry and its parts import only the standard library and the errors
    Then registry.py and the modules that it imports import nothing but these and each other

  Scenario: Only these modules make locks that a forked child may find held
    Then every lock of any other module is made by fork_safe_rlock
      | module                              | because                                           |
      | concurrency/forking.py              | it makes those that are free in a child           |
      | concurrency/clock.py                | a gate: closed in one thread, opened by another   |
      | bridge/operators/async_iterable.py  | a gate                                            |
      | bridge/run_threads.py               | a gate, of a thread that a child does not have    |
      | cli/journal/job.py                  | the job of a command, which no child continues    |
      | cli/journal/retry.py                | of such a job                                     |
      | cli/pipeline/line_tracker.py        | of such a job                                     |
      | cli/pipeline/reader.py              | of such a job                                     |
      | cli/pipeline/run_log.py             | of such a job                                     |
      | executors/ray/cluster.py            | of the connection to Ray, which is the parent's   |
      | executors/ray/connection.py         | of the same connection                            |

  Scenario: Of agents and actors, only agent/internal.py uses private names of another module
    Then the modules of agents and actors use no private names that they do not define, but internal.py

  Scenario Outline: The check of private names detects <code>
    Then the private names that "<code>" does not define are "<names>"

    Examples:
      | code                                | names     |
      | agent._state = 1                    | _state    |
      | self.agent._run(self._state)        | _run      |
      | self._run = other._run              |           |
      | asyncio._get_running_loop()         |           |

  Scenario: Importing the package imports neither LangGraph, LangChain nor the command
    When a new interpreter imports rxlanggraph
    Then none of langgraph, langchain_core, click, rich or rxlanggraph.cli is imported with it

  Scenario: The package exports these names, every error, and no others
    Then the package's __all__ is exactly these names, and the errors
      """
      ChunkReader CleanupReport RxPyLangGraphBridge StreamMessage StuckRun TaskInfo TaskRegistry TimeLimits
      """

  Scenario: The bridge has these public names and no others
    Then the public names of RxPyLangGraphBridge are
      """
      aclose add_hooks astream cleanup_tasks cleanup_tasks_async close create_future_task expire_interrupts
      expire_threads from_iterable invoke join_stream live_app loop_lag pending_interrupts registry statistics stream submit
      """
    And those of an open bridge are these, and what it was made with: max_concurrency name timeout

  Scenario: A registry has these public names and no others
    Then the public names of TaskRegistry are
      """
      add cancel cancel_all close discard snapshot statistics wait_idle wait_idle_async
      """

  Scenario: A state and what it hands out have these public names and no others
    Then the public names of these classes of rxlanggraph.state are
      """
      State: aclose add_tasks backend cancel_tasks claim_task claim_tasks compare_and_set
        complete_tasks dead_letters declare_queue delete get increment_counter iter_dead_letters
        iter_keys iter_locks iter_results iter_tasks lock loop purge queues requeue results
        safe_update set set_if_not_exists stats sync task transact transaction watch
      SyncState: add_tasks cancel_tasks claim_task claim_tasks compare_and_set complete_tasks
        dead_letters declare_queue delete get increment_counter iter_dead_letters iter_keys
        iter_locks iter_results iter_tasks lock purge queues requeue results safe_update set
        set_if_not_exists stats task transact transaction watch
      Lease: check lost remaining
      Claim: complete extend fail item lost release
      StateActor: aclose ask close send state states
      """
    And those of an open state are these, and no others

  Scenario: An agent has these public names and no others
    Then the public names of BaseAgent are
      """
      add_hooks add_message add_messages ainvoke forget_thread memory outputs process_mcp_message request reset
      run run_sync state state_changes state_context state_history step stream
      """
    And those of an agent are these, its output_queue, and what it was made with: description graph llm max_steps name stream_mode timeout

  Scenario: The paths that the design document names exist
    Then every path on its page of changes is a file or folder, 30 or more of them

  Scenario: The names that the page of threads gives exist
    Then every name on the page of threads is one in the code, 100 or more of them

  Scenario: A name that no longer exists is missed on the page of threads
    Then "SerializedObserver.put_nowhere" would be missed there

  Scenario: Fields that threads share say who guards them
    Then every field that a class for any thread replaces is explained where it is made, 60 or more

  Scenario Outline: A field that threads share is missed where <what>
    Then of a class for any thread, the field is missed where <what>

    Examples:
      | what                                 |
      | it has no comment                    |
      | only what is made after it has one   |

  Scenario: Every module has a docstring, and __all__
    Then every module has a docstring, and an __all__ of names that exist

  Scenario: Every public name has a docstring
    Then every public class, function, method and property has a docstring

  Scenario: A step is found by its name as well as by its sentence
    Then every step function is named with words of its sentence, in their order

  Scenario: Every error that a docstring names exists
    Then every name under "Raises:" is a built-in error or one of this package

  Scenario: The parameters of the bridge's methods are those of the contract
    Then the signatures of the bridge are
      """
      __init__: loop, *, max_concurrency, max_threads, max_pending, max_pending_per_thread, overflow, timeout, lanes, lane_ttl, limits, usage, blocked_after, executor, loops, name
      create_future_task: graph, message, *, thread_id, multitask_strategy, timeout, deadline, retry, errors, config, context, durability, interrupt_before, interrupt_after, output_keys, on_pending, keep_checkpoints, name
      submit: graph, message, options
      from_iterable: iterable
      invoke: graph, *, max_concurrency, ordered, thread_id, multitask_strategy, timeout, deadline, retry, errors, config, context, durability, interrupt_before, interrupt_after, output_keys, on_pending, keep_checkpoints, name
      stream: graph, *, stream_mode, subgraphs, max_concurrency, ordered, thread_id, multitask_strategy, timeout, deadline, retry, errors, config, context, durability, interrupt_before, interrupt_after, output_keys, on_pending, keep_checkpoints, resumable, name
      astream: graph, message, *, stream_mode, subgraphs, thread_id, multitask_strategy, timeout, deadline, retry, errors, config, context, durability, interrupt_before, interrupt_after, output_keys, on_pending, keep_checkpoints, resumable, name
      join_stream: message, *, last_sequence, errors
      pending_interrupts: graph, thread_id
      expire_interrupts: graph, older_than, thread_id
      expire_threads: graph, older_than, *, unfinished
      live_app: *, token, allowed_hosts, show_content, nodes, stuck_after, graphs
      cleanup_tasks: timeout
      cleanup_tasks_async: timeout
      close: timeout, *, cancel_timeout, drain_after
      aclose: timeout, *, cancel_timeout, drain_after
      """
