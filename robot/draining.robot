*** Settings ***
Documentation       Graphs that keep their threads in SQLite are asked to stop by a real signal, and go
...                 on in another process: each node runs once in both processes together.
Resource            resources/durable.resource
Test Timeout        3 minutes
Test Setup          Make A Folder And A Journal    SQLite
Test Teardown       No Process Is Left


*** Variables ***
${GRAPHS}           ${CURDIR}/programs/stages.py


*** Test Cases ***
What The Report Names Goes On In The Next Process
    Make A Gate
    Start Program    stages.py    begin    5
    Wait Until It Says    started on    times=2
    Send Signal    SIGTERM
    Wait Until It Says    draining
    Open The Gate
    It Ends With Status    0
    It Complained Of Nothing
    ${runs}=    Records It Printed
    Should Be Equal    ${{[run["outcome"] for run in $runs]}}    ${{["drained"] * 2 + ["cancelled"] * 3}}
    Should Be Equal    ${{[run["begun"] for run in $runs]}}    ${{[True] * 2 + [False] * 3}}
    Each Node Has Run On    1    2    nodes=one two
    Start Program    stages.py    continue    1    2
    It Ends With Status    0
    Each Node Has Run On    1    2    nodes=one two three inner last

Ctrl-C Stops A Run With A Journal Between Supersteps, And --resume Continues It There
    [Template]    A Run With A Journal Is Continued After
    SIGINT    130
    SIGTERM    143

Ctrl-C Without A Journal Says In The Records Where Runs Have Stopped
    Make A Gate
    Threads Of Numbers    6
    Start The Command    graph    -i    in.jsonl    -o    out.jsonl    -j    2    --thread-key    t
    Wait Until It Says    started on    times=2
    Send Signal    SIGINT
    Wait Until It Says    draining
    Open The Gate
    It Ends With Status    130
    It Complained Of Nothing
    It Said    0 ok, 0 failed, 0 invalid, 6 cancelled
    ${records}=    Records Of    out.jsonl
    Length Should Be    ${records}    6
    Each Has    ${{[each["error"] for each in $records]}}    type    RunDrainedError
    ${stopped}=    Evaluate    [each for each in $records if each["checkpoint_id"]]
    Each Has    ${stopped}    status    interrupted
    Length Should Be    ${stopped}    2
    Each Has    ${{[each for each in $records if not each["checkpoint_id"]]}}    status    rejected


*** Keywords ***
Threads Of Numbers
    [Documentation]    Write so many lines with a number each, on three threads.
    [Arguments]    ${count}
    @{lines}=    Evaluate    [json.dumps({"n": n, "t": str(n % 3)}) for n in range(1, ${count} + 1)]    modules=json
    File Holds    in.jsonl    @{lines}

A Run With A Journal Is Continued After
    [Arguments]    ${signal}    ${status}
    Make A Folder And A Journal    SQLite
    Make A Gate
    Threads Of Numbers    6
    Start The Run    -j    2    --thread-key    t    graph=graph
    Wait Until It Says    started on    times=2
    Send Signal    ${signal}
    Wait Until It Says    draining
    Open The Gate
    It Ends With Status    ${status}
    It Complained Of Nothing
    Each Node Has Run On    1    2    nodes=one two
    ${records}=    Records Of    out.jsonl
    Length Should Be    ${records}    0
    ${left}=    Status Comes To    waiting == 6
    Should Be Equal As Integers    ${left}[in_flight]    0
    Start The Run    --resume    -j    2    --thread-key    t    graph=graph
    It Ends With Status    0
    It Complained Of Nothing
    ${records}=    Records Of    out.jsonl
    Length Should Be    ${records}    6
    Each Has    ${records}    status    ok
    Each Node Has Run On    1    2    3    4    5    6    nodes=one two three inner last

Each Node Has Run On
    [Documentation]    Each of these nodes has run exactly once on each of the numbers, and no other.
    [Arguments]    @{numbers}    ${nodes}
    ${runs}=    In The Folder    runs
    ${found}=    Evaluate    sorted(pathlib.Path($runs).read_text().split())    modules=pathlib
    ${expected}=    Evaluate    sorted(map("-".join, itertools.product($numbers, $nodes.split())))    modules=itertools
    Should Be Equal    ${found}    ${expected}
