*** Settings ***
Documentation       ``rxlanggraph run`` within a pipe: a producer that takes its time, a reader that
...                 takes its time or leaves, and descriptors that are not there.
Resource            resources/command.resource
Test Timeout        3 minutes
Test Setup          Make A Folder
Test Teardown       No Process Is Left


*** Test Cases ***
Each Line Of A Slow Producer Is Answered Before The Next One Comes
    Start The Command    double    -i    -
    FOR    ${n}    IN RANGE    1    6
        Send Numbers    ${n}    ${n}
        Wait Until It Prints    "line":${n},
    END
    End Its Input
    It Ends With Status    0
    ${records}=    Records It Printed
    Lines Are In Order    ${records}    1    5
    Account Of    ${records}    lines=5
    It Complained Of Nothing

Rows Of CSV Come Through A Pipe With --format
    Start The Command    warmth    -i    -    --format    csv
    Send Lines    date,temp_max    2012/01/01,12.8
    Wait Until It Prints    "content":12.8
    Send Lines    2012/01/02,10.6
    Wait Until It Prints    "content":10.6
    End Its Input
    It Ends With Status    0
    ${records}=    Records It Printed
    Account Of    ${records}    first=2    lines=2

A Last Line Without Its Newline Counts
    Start Shell    printf '{"n": 1}\\n{"n": 2}' | rxlanggraph run ${GRAPHS}:double -i -
    It Ends With Status    0
    ${records}=    Records It Printed
    Account Of    ${records}    lines=2

The Output Of One Command Is The Input Of The Next
    File Holds Numbers    in.jsonl    300
    Start Shell    rxlanggraph run ${GRAPHS}:double -i in.jsonl -q | rxlanggraph run ${GRAPHS}:second_stage -i -
    It Ends With Status    0
    ${records}=    Records It Printed
    Account Of    ${records}    lines=300
    ${contents}=    Evaluate    sorted(record["content"] for record in $records)
    Should Be Equal    ${contents}    ${{list(range(3, 602, 2))}}

A Reader That Leaves After One Line Ends The Command Without A Traceback
    Start Shell    yes '{"n": 1}' | rxlanggraph run ${GRAPHS}:double -i - | head -n 1; echo "statuses \${PIPESTATUS[*]}" >&2
    It Has Ended
    ${records}=    Records It Printed
    Length Should Be    ${records}    1
    Wait Until It Says    statuses \\d+ 4 0$
    It Said    the reader of standard output has gone (closed pipe)    without a record: line
    It Complained Of Nothing

A Reader That Leaves While The Producer Is Silent Is Noticed At The Next Record
    Start The Command    double    -i    -    reads=${False}
    Send Numbers    1    1
    ${line}=    Read One Line Of Its Output
    Stop Reading Its Output
    Send Numbers    2    2
    It Ends With Status    4
    ${records}=    Records In Text    ${line}
    ${counts}=    Account Of    ${records}    lines=2
    Should Be Equal As Integers    ${counts}[open]    1
    It Complained Of Nothing

A Slow Reader Gets Every Record, Whole
    File Holds Numbers    in.jsonl    3000
    Start The Command    bulky    -i    in.jsonl    reads=${False}
    ${lines}=    Set Variable    ${EMPTY}
    FOR    ${_}    IN RANGE    20
        ${line}=    Read One Line Of Its Output
        ${lines}=    Set Variable    ${lines}${line}
    END
    Read The Rest Of Its Output
    It Ends With Status    0
    ${first}=    Records In Text    ${lines}
    ${rest}=    Records It Printed
    Account Of    ${first}    ${rest}    lines=3000

A Reader That Stops Reading Stops The Intake
    [Documentation]    What is taken in is bounded by what the pipe holds, some hundred of these
    ...    records, and by the window of lines without a record, four for each of 32 runs.
    File Holds Numbers    in.jsonl    20000
    Start The Command    bulky    -i    in.jsonl    reads=${False}
    Wait Until It Says    started on    times=150
    Send Signal    SIGINT
    Wait Until It Says    draining
    Read The Rest Of Its Output
    It Ends With Status    130
    ${records}=    Records It Printed
    ${counts}=    Account Of    ${records}
    Should Be True    ${counts}[read] <= 300

A Standard Input That Is Closed Is Named
    Start Shell    rxlanggraph run ${GRAPHS}:double -i - -o out.jsonl <&-
    It Ends With Status    2
    It Complained Of Nothing
    It Said    cannot read standard input

A Standard Output That Is Closed Is Named
    File Holds Numbers    in.jsonl    3
    Start Shell    rxlanggraph run ${GRAPHS}:double -i in.jsonl >&-
    It Ends With Status    4
    It Complained Of Nothing
    It Said    standard output

A Closed Standard Error Stops No Thread
    File Holds Numbers    in.jsonl    3
    Start Shell    rxlanggraph run ${GRAPHS}:double -i in.jsonl 2>&-
    It Ends With Status    0
    ${records}=    Records It Printed
    Length Should Be    ${records}    3
