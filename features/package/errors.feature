Feature: Errors form one tree, and each says what to do

  Scenario: The tree drawn in the module is the tree of the classes
    Then the classes drawn in errors.py, their bases and their built-in bases are those of the code

  Scenario: Every error of the tree is exported, documented, and caught by its root
    Then every class in errors.py is in its __all__, has a docstring, and derives from the root

  Scenario Outline: A handler of the built-in <builtin> catches <error>
    Then the class <error> is a <builtin>

    Examples:
      | error                | builtin      |
      | InvalidArgumentError | ValueError   |
      | InvalidTypeError     | TypeError    |
      | BlockingCallError    | RuntimeError |
      | WrongThreadError     | RuntimeError |
      | BridgeClosedError    | RuntimeError |
      | RegistryClosedError  | RuntimeError |
      | LoopUnavailableError | RuntimeError |
      | RunTimeoutError      | TimeoutError |

  Scenario: Misuse, closed objects, lost loops and failed runs have separate base classes
    Then no error is two of UsageError, ClosedError, LoopUnavailableError and RunError

  Scenario: Every error can be pickled, so that it may cross to another process
    Then every error survives pickle with its message
