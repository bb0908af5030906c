*** Settings ***
Documentation       ``rxlanggraph run`` from file to file: real data, invalid data, and everything
...                 about files and graphs that can be wrong. Each line of the input has one record
...                 in the end or is named as having none, and the summary says so.
Resource            resources/command.resource
Test Timeout        3 minutes
Test Setup          Make A Folder
Test Teardown       No Process Is Left


*** Test Cases ***
# -- real data

The Survey Of All Airports Equals What Plain Python Computes, Record By Record
    Survey The Airports    --thread-key    state
    ${records}=    Records Of    out.jsonl
    Each Airport Is Surveyed As Plain Python Does    ${records}
    Account Of    ${records}    first=2    lines=3376

The Survey Comes In The Order Of The File With --ordered
    Survey The Airports    --thread-key    state    --ordered    -j    8
    ${records}=    Records Of    out.jsonl
    Lines Are In Order    ${records}    2    3377
    Each Airport Is Surveyed As Plain Python Does    ${records}

Four Years Of Weather Give The Same As CSV And As JSON Lines
    ${examples}=    Folder Of The Examples
    ${status}=    Run The Command    warmth    -i    ${examples}/data/seattle-weather.csv
    ...    -o    csv.jsonl
    Should Be Equal As Integers    ${status}    0
    ${records}=    Records Of    csv.jsonl
    Warmths Are Those Of The File    ${records}
    Account Of    ${records}    first=2    lines=1461
    ${path}=    In The Folder    weather.jsonl
    Copy As Json Lines    seattle-weather.csv    ${path}
    ${status}=    Run The Command    warmth    -i    weather.jsonl    -o    jsonl.jsonl
    Should Be Equal As Integers    ${status}    0
    ${records}=    Records Of    jsonl.jsonl
    Warmths Are Those Of The File    ${records}
    Account Of    ${records}    lines=1461

A Hundred Messages On One Thread Are Counted Exactly
    ${line}=    Set Variable    {"n": 1, "room": "lobby"}
    File Holds    in.jsonl    @{{[$line] * 100}}
    ${status}=    Run The Command    remembering    -i    in.jsonl    -o    out.jsonl
    ...    --thread-key    room
    Should Be Equal As Integers    ${status}    0
    ${records}=    Records Of    out.jsonl
    ${seen}=    Evaluate    [record["content"]["seen"] for record in $records]
    Should Be Equal    ${seen}    ${{list(range(1, 101))}}
    Each Has    ${records}    thread_id    lobby

An Empty File Is Done At Once
    File Holds    in.jsonl
    ${status}=    Run The Command    double    -i    in.jsonl    -o    out.jsonl
    Should Be Equal As Integers    ${status}    0
    ${records}=    Records Of    out.jsonl
    Account Of    ${records}    lines=0

# -- invalid data, failing graphs

Invalid Lines Affect No Others, And Are Among The Results
    Make A File With Invalid Lines
    ${status}=    Run The Command    picky    -i    in.jsonl    -o    out.jsonl
    Should Be Equal As Integers    ${status}    1
    ${records}=    Records Of    out.jsonl
    ${counts}=    Account Of    ${records}    lines=6
    Should Be Equal As Integers    ${counts}[ok]    2
    Should Be Equal As Integers    ${counts}[invalid]    2
    Should Be Equal As Integers    ${counts}[failed]    2

With --errors Records That Are Not Ok Go To A File Of Their Own, With The Raw Line
    Make A File With Invalid Lines
    ${status}=    Run The Command    picky    -i    in.jsonl    -o    out.jsonl
    ...    --errors    errors.jsonl
    Should Be Equal As Integers    ${status}    1
    ${good}=    Records Of    out.jsonl
    ${bad}=    Records Of    errors.jsonl
    Account Of    ${good}    ${bad}    lines=6
    Each Has    ${good}    status    ok
    Should Be Equal    ${{[record["line"] for record in $good]}}    ${{[1, 6]}}
    ${invalid}=    Record Of Line    ${bad}    2
    Should Be Equal    ${invalid}[status]    invalid
    Should Be Equal    ${invalid}[raw]    {"n": 2
    Should Contain    ${invalid}[error][message]    not JSON
    ${failed}=    Record Of Line    ${bad}    3
    Should Be Equal    ${failed}[status]    error
    Should Be Equal    ${failed}[error][type]    ZeroDivisionError
    Should Be Equal    ${failed}[raw]    {"n": 0}

With --ordered Invalid Lines Keep Their Place
    Make A File With Invalid Lines
    Run The Command    picky    -i    in.jsonl    -o    out.jsonl    --ordered
    ${records}=    Records Of    out.jsonl
    Lines Are In Order    ${records}    1    6

With --ordered The Order Is That Of The Input, Whichever Run Ends First
    File Holds Numbers    in.jsonl    500
    ${status}=    Run The Command    first_waits_for_last    -i    in.jsonl    -o    out.jsonl
    ...    --ordered
    Should Be Equal As Integers    ${status}    0
    ${records}=    Records Of    out.jsonl
    Lines Are In Order    ${records}    1    500

Without --ordered No Result Waits For A Slower One
    File Holds Numbers    in.jsonl    10
    Run The Command    first_waits_for_last    -i    in.jsonl    -o    out.jsonl
    ${records}=    Records Of    out.jsonl
    Account Of    ${records}    lines=10
    Should Be Equal As Integers    ${records}[-1][line]    1

A Message That Takes Longer Than --timeout Has Failed, And Delays No Other
    File Holds Numbers    in.jsonl    20
    ${status}=    Run The Command    even_only    -i    in.jsonl    -o    out.jsonl
    ...    --timeout    1    -j    4
    Should Be Equal As Integers    ${status}    1
    ${records}=    Records Of    out.jsonl
    Account Of    ${records}    lines=20
    Each Has    ${{[record for record in $records if record["line"] % 2 == 0]}}    status    ok
    Each Has    ${{[record for record in $records if record["line"] % 2]}}    status    timed_out

A Failed Message Is Tried Again With --retries
    File Holds Numbers    in.jsonl    5
    ${status}=    Run The Command    second_try    -i    in.jsonl    -o    out.jsonl    --retries    1
    Should Be Equal As Integers    ${status}    0
    ${records}=    Records Of    out.jsonl
    Account Of    ${records}    lines=5
    Each Has    ${records}    attempts    ${2}

--halt Stops After N Failures, And Reports Where
    File Holds    in.jsonl    @{{['{"n": 0}'] * 1000}}
    ${status}=    Run The Command    picky    -i    in.jsonl    -o    out.jsonl    --halt    3
    ...    -j    2
    Should Be Equal As Integers    ${status}    3
    It Said    halted: 3 of 3 messages failed
    ${records}=    Records Of    out.jsonl
    ${counts}=    Account Of    ${records}
    Should Be True    3 <= ${counts}[read] <= 20

Output That A Graph Prints Is Not Among The Records
    File Holds Numbers    in.jsonl    3
    ${status}=    Run The Command    chatty    -i    in.jsonl
    Should Be Equal As Integers    ${status}    0
    ${records}=    Records It Printed
    Account Of    ${records}    lines=3
    It Said    what a graph prints    what a graph says

# -- files and graphs that are wrong

A Missing Graph Is Named With A Remedy, And No File Is Touched
    [Template]    Command Refuses
    ${GRAPHS}:dubble    has no 'dubble'    did you mean double
    ${GRAPHS}    does not name a graph    MODULE_OR_FILE:GRAPH
    nowhere.py:graph    no file 'nowhere.py'    give the path
    nowhere:graph    no module 'nowhere'    check its name
    ${GRAPHS}:number    is not a graph    pass a compiled LangGraph graph
    ${GRAPHS}:remembering    has a checkpointer    --thread-key

An Input That Cannot Be Read Is Named With A Remedy, And No File Is Touched
    [Template]    Command Refuses
    ${GRAPHS}:double    nowhere.jsonl: No such file    give a readable file    input=nowhere.jsonl
    ${GRAPHS}:double    cannot read .: Is a directory    give a readable file    input=.
    ${GRAPHS}:double    would overwrite the input    name another file    input=out.jsonl

A Read Error Is Reported
    ${status}=    Run The Command    double    -i    /proc/self/mem    -o    out.jsonl
    Should Be Equal As Integers    ${status}    2
    It Said    reading /proc/self/mem failed: Input/output error

An Output That Cannot Be Opened Is Named With A Remedy
    File Holds Numbers    in.jsonl    1
    ${status}=    Run The Command    double    -i    in.jsonl    -o    nowhere/out.jsonl
    Should Be Equal As Integers    ${status}    4
    It Said    cannot write nowhere/out.jsonl    name a file in a directory that exists

A Full Disk Is Reported, And Every Line Without A Record Is Named
    File Holds Numbers    in.jsonl    2000
    ${status}=    Run The Command    double    -i    in.jsonl    -o    /dev/full
    Should Be Equal As Integers    ${status}    4
    It Said    no room left for /dev/full    without a record: lines 1
    Account Of    ${{[]}}

A Full Disk For The Failures Leaves The Results Whole
    Make A File With Invalid Lines
    ${status}=    Run The Command    picky    -i    in.jsonl    -o    out.jsonl
    ...    --errors    /dev/full
    Should Be Equal As Integers    ${status}    4
    It Said    no room left for /dev/full
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    status    ok
    Account Of    ${records}

A Full Standard Error Stops No Thread, And The Exit Status Is Right
    File Holds Numbers    in.jsonl    3
    Start Shell    rxlanggraph run ${GRAPHS}:double -i in.jsonl -o out.jsonl 2>/dev/full
    It Ends With Status    0
    ${records}=    Records Of    out.jsonl
    Should Be Equal    ${{sorted(record["line"] for record in $records)}}    ${{[1, 2, 3]}}
    Start Shell    rxlanggraph run ${GRAPHS}:double -i nowhere.jsonl 2>/dev/full
    It Ends With Status    2


*** Keywords ***
Survey The Airports
    [Documentation]    Run the example as its own text says: from its folder, on its data.
    [Arguments]    @{options}
    ${examples}=    Folder Of The Examples
    ${output}=    In The Folder    out.jsonl
    Start Command    run    airports.py:graph    --input    data/airports.csv
    ...    --output    ${output}    @{options}    cwd=${examples}    measured=${False}
    End Its Input
    It Ends With Status    0
    It Complained Of Nothing

Make A File With Invalid Lines
    File Holds    in.jsonl    {"n": 1}    {"n": 2    {"n": 0}    nonsense    {"m": 1}    {"n": 6}

Command Refuses
    [Arguments]    ${target}    ${problem}    ${remedy}    ${input}=in.jsonl
    File Holds    in.jsonl    {"n": 1}
    File Holds    out.jsonl    from an earlier run
    Start Command    run    ${target}    --input    ${input}    --output    out.jsonl
    End Its Input
    It Ends With Status    2
    It Said    ${problem}    ${remedy}
    It Complained Of Nothing
    ${path}=    In The Folder    out.jsonl
    Should Be Equal    ${{open($path).read()}}    from an earlier run\n
