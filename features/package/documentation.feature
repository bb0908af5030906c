@once
Feature: The documentation site has every public name and every page

  The session docs of nox builds it; these are the checks that need no build.

  Scenario: Every public name is in the reference
    Then the reference has each name that these modules export, but for the internal ones
      | module                                | internal                          |
      | rxlanggraph                           |                                   |
      | rxlanggraph.operators                 |                                   |
      | rxlanggraph.hooks                     |                                   |
      | rxlanggraph.limits                    |                                   |
      | rxlanggraph.executors                 |                                   |
      | rxlanggraph.telemetry                 |                                   |
      | rxlanggraph.telemetry.prometheus      |                                   |
      | rxlanggraph.agent                     |                                   |
      | rxlanggraph.agent.mcp                 |                                   |
      | rxlanggraph.state                     |                                   |
      | rxlanggraph.testing                   |                                   |
      | rxlanggraph.testing.state_conformance |                                   |
      | rxlanggraph.errors                    |                                   |
      | rxlanggraph.actor                     |                                   |
    And the README and the documents import from no other module of the package

  Scenario: A name that is taken out of the reference is missed
    Given the reference without its page hooks.rst
    Then it lacks Hooks and RunEnded of rxlanggraph.hooks

  Scenario: Every page is in a table of contents
    Then each page below docs is in exactly one table of contents, 20 or more of them

  Scenario: The figures of the plots are of one run, on a machine that is named by what it is
    Then the figures for the plots have their claim, and values within their ranges, 50 or more of them
    And their machine is named by its cpu, num_cpu, arch, ram and os alone

  Scenario: What is said of random defects in the core is of code that exists
    Then tests/mutants.py has modules of the package with features of each, 50 or more of them
    And each row of docs/mutants.md names a line in a function of these modules, 10 or more of them

  Scenario Outline: A page that loads <what> from another host is detected
    When a page of the site has this content: <content>
    Then it is reported to load <address>

    Examples:
      | what          | content                                                           | address                    |
      | a script      | <script src="https://cdn.example/a.js"></script>                  | https://cdn.example/a.js   |
      | a style sheet | <link rel="stylesheet" href="//cdn.example/a.css">                | //cdn.example/a.css        |
      | a font        | <style>@font-face {src: url("https://cdn.example/a.woff")}</style> | https://cdn.example/a.woff |
      | an image      | <img src="http://cdn.example/a.png">                              | http://cdn.example/a.png   |

  Scenario: A page with links to other hosts loads nothing from them
    When a page of the site has this content: <a href="https://example.org">there</a> <img src="here.png">
    Then it is reported to load nothing from elsewhere
