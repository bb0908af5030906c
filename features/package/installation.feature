Feature: The plain installation suffices for what names no extra

  What comes with no extra is hidden from an interpreter, as if it were not installed.

  Scenario: A journal and a state in SQLite files take nothing but the plain installation
    Given an interpreter with the packages of the plain installation alone
    When it runs a graph of LangGraph with a journal in a file, and opens a state in another file
    Then every message of the journal is answered, and the state has counted to 1

  Scenario Outline: The interpreter of this feature cannot import <package>, which comes with an extra
    Given an interpreter with the packages of the plain installation alone
    When that interpreter imports <package>
    Then it has found no module of the name <package>

    Examples:
      | package       |
      | aiosqlite     |
      | mcp           |
      | opentelemetry |
      | psycopg       |
      | redis         |
