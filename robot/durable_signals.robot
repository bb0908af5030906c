*** Settings ***
Documentation       A run with a journal that is interrupted, looked at, and gone on with; and what it
...                 refuses. The processes are real, and so is what they leave behind.
Resource            resources/durable.resource
Test Timeout        5 minutes
Test Setup          Make A Folder And A Journal    SQLite
Test Teardown       No Process Is Left


*** Test Cases ***
The First Ctrl-C Drains, And --resume Does The Rest
    File Holds Numbers    in.jsonl    300
    Each Process Answers At Most    60
    Start The Run    -j    4
    Wait Until It Says    started on    times=20
    Send Signal    SIGINT
    Wait Until It Says    draining: \\d+ lines? (is|are) not answered yet; Ctrl-C again cancels what is left
    Each Process May Answer All
    It Ends With Status    130
    It Said    interrupted by Ctrl-C    continue with --resume
    It Complained Of Nothing
    ${status}=    Status Comes To    answered < 300
    Should Be Equal As Integers    ${status}[in_flight]    0
    ${records}=    Records Of    out.jsonl
    Length Should Be    ${records}    ${status}[answered]
    Start The Run    --resume
    It Ends With Status    0
    Each Line Has Its Record    300
    ${runs}=    In The Folder    runs
    Should Be Equal As Integers    ${{len(pathlib.Path($runs).read_text().split())}}    300

SIGTERM Drains, And Keeps The Order
    File Holds Numbers    in.jsonl    300
    Each Process Answers At Most    60
    Start The Run    -j    4    --ordered
    Wait Until It Says    started on    times=20
    Send Signal    SIGTERM
    Wait Until It Says    draining
    Each Process May Answer All
    It Ends With Status    143
    It Complained Of Nothing
    Start The Run    --resume    --ordered
    It Ends With Status    0
    Each Line Has Its Record    300    ${True}

The Second Ctrl-C Cancels: Cancelled Lines Have No Answer Yet, And Are Free At Once
    Set Test Variable    ${LEASE}    3600    # not because of its end
    File Holds Numbers    in.jsonl    20
    Start The Run    -j    4    graph=endless
    Wait Until It Says    started on    times=4
    Send Signal    SIGINT
    Wait Until It Says    draining
    Send Signal    SIGINT
    It Ends With Status    130
    It Complained Of Nothing
    ${records}=    Records Of    out.jsonl
    Length Should Be    ${records}    0
    ${status}=    Status Comes To    waiting == 20
    Should Be Equal As Integers    ${status}[in_flight]    0

The Writing Process Is Killed, And The Other Continues
    Make A Gate
    File Holds Numbers    in.jsonl    200
    ${first}=    Start The Run    --resume    -j    1    graph=gated
    Wait Until It Says    started on
    ${second}=    Start The Run    --resume    -j    8    graph=gated
    Wait Until It Says    started on    times=8
    Turn To    ${first}
    Kill It
    Open The Gate
    Turn To    ${second}
    It Ends With Status    0
    Each Line Has Its Record    200

Status Shows The Messages In Flight By Worker
    Make A Gate
    File Holds Numbers    in.jsonl    10
    ${first}=    Start The Run    --resume    -j    3    graph=gated
    Wait Until It Says    started on    times=3
    ${second}=    Start The Run    --resume    -j    2    graph=gated
    Wait Until It Says    started on    times=2
    ${status}=    Status Comes To    in_flight == 5
    Should Be Equal    ${status}[lines]    ${10}
    Should Be Equal    ${status}[waiting]    ${5}
    Should Be Equal    ${{sorted($status["workers"].values())}}    ${{[2, 3]}}
    Open The Gate
    It Ends With Status    0
    Turn To    ${first}
    It Ends With Status    0
    Each Line Has Its Record    10

A Watched Status Is Shown Until All Is Answered
    Make A Gate
    File Holds Numbers    in.jsonl    10
    ${run}=    Start The Run    -j    3    graph=gated
    Wait Until It Says    started on    times=3
    Start Command    status    ${JOURNAL}    --json    --watch    --interval    0.1
    Wait Until It Prints    "finished": false    times=2
    Open The Gate
    It Ends With Status    0
    ${printed}=    What It Printed
    ${last}=    Evaluate    json.loads($printed.splitlines()[-1])    modules=json
    Should Be True    ${last}[finished]
    Should Be Equal As Integers    ${last}[ok]    10
    Turn To    ${run}
    It Ends With Status    0

Ctrl-C Ends A Watched Status
    Make A Gate
    File Holds Numbers    in.jsonl    1
    ${run}=    Start The Run    graph=gated
    Wait Until It Says    started on
    Start Command    status    ${JOURNAL}    --watch    --interval    1000
    Wait Until It Prints    in flight
    Send Signal    SIGINT
    It Ends With Status    130
    It Complained Of Nothing
    Turn To    ${run}
    Open The Gate
    It Ends With Status    0

Each Of Several Outputs Is Whole
    File Holds Numbers    in.jsonl    200
    ${first}=    Start The Run    --resume    -j    4
    ${second}=    Start The Run    --resume    -j    4    output=other.jsonl
    It Ends With Status    0
    ${path}=    In The Folder    other.jsonl
    Each Line Is Answered Once    ${path}    200
    Turn To    ${first}
    It Ends With Status    0
    Each Line Has Its Record    200

Another Input Is Refused, And Nothing Is Touched
    File Holds Numbers    in.jsonl    5
    Start The Run
    It Ends With Status    0
    File Holds Numbers    in.jsonl    6
    Start The Run    --resume
    It Ends With Status    2
    It Said    belongs to another run    its input is in.jsonl    name another journal
    It Complained Of Nothing
    Each Line Has Its Record    5

Standard Output Gets All Results, And Is Refused If It May Have Some Already
    File Holds Numbers    in.jsonl    5
    Start Shell    rxlanggraph run ${GRAPHS}:announced -i in.jsonl --journal ${JOURNAL} >> out.jsonl
    It Ends With Status    0
    Each Line Has Its Record    5
    Start Shell    rxlanggraph run ${GRAPHS}:announced -i in.jsonl --journal ${JOURNAL} --resume >> out.jsonl
    It Ends With Status    2
    It Said    standard output is appended to a file    name the file with --output
    Each Line Has Its Record    5
    Start Shell    rxlanggraph run ${GRAPHS}:announced -i in.jsonl --journal ${JOURNAL} --resume -o out.jsonl
    It Ends With Status    0
    Start Shell    rxlanggraph run ${GRAPHS}:announced -i in.jsonl --journal ${JOURNAL} --resume
    It Ends With Status    0
    ${records}=    Records It Printed
    Account Of    ${records}    lines=5
    Each Line Has Its Record    5

A Reader That Leaves Ends The Command, And Costs No Answer
    File Holds Numbers    in.jsonl    200
    Start Shell    rxlanggraph run ${GRAPHS}:bulky -i in.jsonl --journal ${JOURNAL} | head -n 1
    It Has Ended
    It Said    the reader of standard output has gone    continue with --resume
    It Complained Of Nothing
    Start Shell    rxlanggraph run ${GRAPHS}:bulky -i in.jsonl --journal ${JOURNAL} --resume -q
    It Ends With Status    0
    ${records}=    Records It Printed
    Length Should Be    ${records}    200
