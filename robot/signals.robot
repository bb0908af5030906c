*** Settings ***
Documentation       Real signals to a real ``rxlanggraph run``, at moments that the process itself
...                 announces. Whatever was done stays done, and whatever was not is said.
Resource            resources/command.resource
Test Timeout        3 minutes
Test Setup          Make A Folder
Test Teardown       No Process Is Left


*** Test Cases ***
The First Ctrl-C Drains: Every Line That Was Read Is Answered
    Make A Gate
    File Holds Numbers    in.jsonl    1000
    Start The Command    gated    -i    in.jsonl    -o    out.jsonl    -j    4
    Wait Until It Says    started on    times=4
    Send Signal    SIGINT
    Wait Until It Says    draining: \\d+ lines are not answered yet; Ctrl-C again cancels what is left
    Open The Gate
    It Ends With Status    130
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    status    ok
    ${counts}=    Account Of    ${records}
    Should Be True    4 <= ${counts}[read] <= 17
    It Complained Of Nothing

Lines That Were Read And Not Run Are Listed
    Start The Command    announced    -i    -    --rate    1/h
    Send Numbers    1    2
    Wait Until It Prints    "line":1,
    Send Signal    SIGINT
    It Ends With Status    130
    ${records}=    Records It Printed
    ${counts}=    Account Of    ${records}
    Should Be Equal As Integers    ${counts}[ok]    1
    It Complained Of Nothing

SIGTERM Drains
    Make A Gate
    File Holds Numbers    in.jsonl    1000
    Start The Command    gated    -i    in.jsonl    -o    out.jsonl    -j    4
    Wait Until It Says    started on    times=4
    Send Signal    SIGTERM
    Wait Until It Says    draining
    Open The Gate
    It Ends With Status    143
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    status    ok
    Account Of    ${records}
    It Complained Of Nothing

Draining Keeps The Order Of --ordered
    Make A Gate
    File Holds Numbers    in.jsonl    1000
    Start The Command    gated    -i    in.jsonl    -o    out.jsonl    -j    4    --ordered
    Wait Until It Says    started on    times=4
    Send Signal    SIGINT
    Wait Until It Says    draining
    Open The Gate
    It Ends With Status    130
    ${records}=    Records Of    out.jsonl
    Lines Are In Order    ${records}    1    ${{len($records)}}

The Second Ctrl-C Cancels, And Each Cancelled Line Has A Record
    File Holds Numbers    in.jsonl    1000
    Start The Command    endless    -i    in.jsonl    -o    out.jsonl    -j    4
    Wait Until It Says    started on    times=4
    Send Signal    SIGINT
    Wait Until It Says    draining
    Send Signal    SIGINT
    It Ends With Status    130
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    status    cancelled
    ${counts}=    Account Of    ${records}
    Should Be True    ${counts}[read] >= 4
    It Complained Of Nothing

Ctrl-C After SIGTERM Cancels Too
    Start The Command    endless    -i    -    -o    out.jsonl
    Send Numbers    1    3
    Wait Until It Says    started on    times=3
    Send Signal    SIGTERM
    Wait Until It Says    draining
    Send Signal    SIGINT
    It Ends With Status    143
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    status    cancelled
    Account Of    ${records}    lines=3

The Third Ctrl-C Ends What Cannot Be Cancelled, At Once
    Start The Command    stuck    -i    -    -o    out.jsonl
    Send Numbers    1    1
    Wait Until It Says    started on
    Send Signal    SIGINT
    Wait Until It Says    draining
    Send Signal    SIGINT
    Wait Until It Says    cancelling
    Send Signal    SIGINT
    It Ends With Status    -2

What Cannot Be Cancelled Is Named And Left Behind
    Start The Command    stuck    -i    -    -o    out.jsonl
    Send Numbers    1    1
    Wait Until It Says    started on
    Send Signal    SIGINT
    Wait Until It Says    draining
    Send Signal    SIGINT
    It Ends With Status    130
    It Said    left behind: stuck
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    status    cancelled
    Account Of    ${records}    lines=1
    It Complained Of Nothing

Signals End A Command Whose Input Is Silent
    [Template]    Silent Input Is Left On
    SIGINT    130
    SIGTERM    143

Signals End A Command That Has Run Nothing Yet
    [Template]    Input Without A Message Is Left On
    SIGINT    130
    SIGTERM    143

Ctrl-C While The Graph Is Being Imported Ends Without A Traceback
    Start Command    run    ${CURDIR}/programs/slow_import.py:graph    -i    -
    Wait Until It Says    importing
    Send Signal    SIGINT
    It Ends With Status    130
    It Complained Of Nothing

Ctrl-C Typed On A Terminal Drains, Below A Progress Bar
    Make A Gate
    File Holds Numbers    in.jsonl    1000
    Start On A Terminal    run    ${GRAPHS}:gated    -i    in.jsonl    -j    4
    Wait Until It Says    started on    times=4
    Type On Its Terminal    CTRL-C
    Wait Until It Says    draining
    Open The Gate
    It Ends With Status    130
    ${records}=    Records It Printed
    Each Has    ${records}    status    ok
    Account Of    ${records}
    It Said    queued
    It Complained Of Nothing

A Reader That Does Not Read Cannot Hold Up The Third Ctrl-C
    File Holds Numbers    in.jsonl    20000
    Start The Command    bulky    -i    in.jsonl    reads=${False}
    Wait Until It Says    started on    times=150
    Send Signal    SIGINT
    Wait Until It Says    draining
    Send Signal    SIGINT
    Wait Until It Says    cancelling
    Send Signal    SIGINT
    It Ends With Status    -2

SIGKILL Leaves Whole Lines Only
    File Holds Numbers    in.jsonl    2000
    Each Process Answers At Most    1000
    Start The Command    bulky    -i    in.jsonl    -o    out.jsonl
    Wait Until It Says    started on    times=500
    Send Signal    SIGKILL
    It Ends With Status    -9
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    status    ok
    Should Be True    300 <= len($records) <= 1000

The Lines That SIGKILL Left Undone Are Those Without A Record
    [Documentation]    The lines without a record, run again, complete the job exactly.
    File Holds Numbers    in.jsonl    3000
    Each Process Answers At Most    2000
    Start The Command    announced    -i    in.jsonl    -o    first.jsonl
    Wait Until It Says    started on    times=500
    Send Signal    SIGKILL
    It Ends With Status    -9
    Each Process May Answer All
    ${first}=    Records Of    first.jsonl
    ${done}=    Lines Of    ${first}
    ${missing}=    Evaluate    sorted(set(range(1, 3001)) - set($done))
    File Holds    rest.jsonl    @{{['{"n": %d}' % n for n in $missing]}}
    ${status}=    Run The Command    announced    -i    rest.jsonl    -o    second.jsonl
    Should Be Equal As Integers    ${status}    0
    ${second}=    Records Of    second.jsonl
    ${all}=    Evaluate    sorted(record["content"] for record in $first + $second)
    Should Be Equal    ${all}    ${{list(range(1, 3001))}}


*** Keywords ***
Silent Input Is Left On
    [Documentation]    The input is open, nothing comes, and no run is in flight.
    [Arguments]    ${signal}    ${status}
    Start The Command    announced    -i    -
    Send Numbers    1    3
    Wait Until It Prints    "status":"ok"    times=3
    Send Signal    ${signal}
    It Ends With Status    ${status}
    ${records}=    Records It Printed
    Account Of    ${records}    lines=3
    It Complained Of Nothing

Input Without A Message Is Left On
    [Documentation]    The input is open; only an invalid line has come.
    [Arguments]    ${signal}    ${status}
    Start The Command    announced    -i    -
    Send Lines    nonsense
    Wait Until It Prints    "status":"invalid"
    Send Signal    ${signal}
    It Ends With Status    ${status}
    ${records}=    Records It Printed
    Account Of    ${records}    lines=1
    It Complained Of Nothing
