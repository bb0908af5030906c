Feature: An agent's output can be read in the same way run after run

  Scenario Outline: <A stream> is read <when>, three runs in a row, with on_busy=<policy>
    Given an agent that answers "1" with "to 1", and so on
    When it is asked "1", "2" and "3" with on_busy=<policy>, and each time <a stream> is read <when>
    Then each time what was read is the answer alone, and ended

    Examples:
      | A stream             | a stream             | when                              | policy  |
      | A competing stream   | a competing stream   | while a task runs it              | raise   |
      | A competing stream   | a competing stream   | while a task runs it              | enqueue |
      | A competing stream   | a competing stream   | while another thread runs it      | raise   |
      | A competing stream   | a competing stream   | while another thread runs it      | enqueue |
      | A competing stream   | a competing stream   | when it has run                   | raise   |
      | A competing stream   | a competing stream   | when it has run                   | enqueue |
      | A competing stream   | a competing stream   | when it has run, but opened before | raise   |
      | A competing stream   | a competing stream   | when it has run, but opened before | enqueue |
      | A broadcast          | a broadcast          | while a task runs it              | raise   |
      | A broadcast          | a broadcast          | while a task runs it              | enqueue |
      | A broadcast          | a broadcast          | while another thread runs it      | raise   |
      | A broadcast          | a broadcast          | while another thread runs it      | enqueue |
      | A broadcast          | a broadcast          | when it has run, but opened before | raise   |
      | A broadcast          | a broadcast          | when it has run, but opened before | enqueue |

  Scenario Outline: Three queued runs are read one after another by <a stream> each
    Given an agent that answers "1" with "to 1", and so on
    When it is asked "1", "2" and "3" at once, and read by <a stream> each
    Then each time what was read is the answer alone, and ended

    Examples:
      | a stream           |
      | a competing stream |
      | a broadcast        |

  Scenario Outline: A run that <puts nothing out> has an empty stream, between two that do, <when>
    Given an agent that answers "1" with "to 1", and so on, and <puts nothing out> at "2"
    When it is asked "1", "2" and "3" with on_busy=raise, and each time a competing stream is read <when>
    Then the first and the third were read, and of the second the end

    Examples:
      | puts nothing out | when                 |
      | fails            | while a task runs it |
      | fails            | when it has run      |
      | is silent        | while a task runs it |
      | is silent        | when it has run      |

  # -- between two runs --------------------------------------------------------------------------

  Scenario Outline: A competing stream that is opened <between> is that of the <run> run
    Given an output queue between two runs, <between>
    When a competing stream is opened, "between" is put, and then "next" in the next run
    Then that stream gives <items>, and no more

    Examples:
      | between                                                   | run  | items         |
      | one item left                                             | last | left, between |
      | one item left, another got                                | last | left, between |
      | nothing left, and no consumer has met the end             | last | between       |
      | nothing left, and a stream was closed as it waited        | last | between       |
      | nothing left, and a broadcast has met the end             | last | between       |
      | nothing left, and a getter has met the end                | next | between, next |
      | nothing left, and a stream has met the end                | next | between, next |
      | nothing left, and a getter has met that of an earlier run | last | between       |

  Scenario: A broadcast that is opened between two runs has what is put from then on, until the next one's end
    Given an output queue between two runs, one item left
    When a broadcast is opened, "between" is put, and then "next" in the next run
    Then that stream gives between, next, and no more

  Scenario: Ending a run again does not end a consumer that waits for the next one
    Given an output queue between two runs, nothing left, and a stream has met the end
    When streams of both kinds are opened, the run is ended again, and the next one puts "next" and ends
    Then each of them gives next, and ends

  Scenario: An end before the first run ends that, and a stream opened then waits for the next
    Given an output queue before its first run
    When streams of both kinds are opened, the run is ended, and streams of both kinds are opened again
    Then the first two have ended, and the others wait once the end was met

  Scenario: A run that begins without the end of the one before ends it for its streams
    Given an output queue
    When streams of both kinds are opened in a run, and the next one begins and puts "next"
    Then each of them has ended, with nothing
