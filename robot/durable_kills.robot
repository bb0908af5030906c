*** Settings ***
Documentation       Processes that work on a journal and are really killed, at moments that they
...                 announce themselves: each line of the input is answered exactly once in the end,
...                 over SQLite, PostgreSQL and Valkey.
Resource            resources/durable.resource
Test Timeout        5 minutes
Test Teardown       No Process Is Left
Suite Teardown      Stop Servers


*** Variables ***
${MEASURED}         ${False}


*** Test Cases ***
A Run Killed At Many Moments Loses Nothing And Doubles Nothing
    [Template]    Killed Again And Again, Each Line Is Answered Once
    SQLite
    PostgreSQL
    Valkey

A Run Killed At Many Moments Keeps The Order With --ordered
    [Template]    Killed Again And Again, Each Line Is Answered Once
    SQLite        --ordered
    PostgreSQL    --ordered
    Valkey        --ordered

A Run May Be Killed Before It Has Begun, While It Begins, And Just After
    [Documentation]    From the first moment at which it can be killed to the first answer.
    Make A Folder And A Journal    SQLite
    File Holds Numbers    in.jsonl    50
    FOR    ${looks}    IN RANGE    0    24
        Start The Run    --resume
        Wait For A While    ${looks}
        Send Signal    SIGKILL
        It Has Ended
    END
    Start The Run    --resume
    It Ends With Status    0
    Each Line Has Its Record    50

Of Two Processes On One Run, One Is Killed, And The Other Completes The Run
    [Template]    One Is Killed, And The Others End It
    SQLite        2
    PostgreSQL    2
    Valkey        2

Of Three Processes On One Run, One Is Killed, And The Others Complete The Run
    [Template]    One Is Killed, And The Others End It
    SQLite        3    --ordered
    PostgreSQL    3    --ordered
    Valkey        3    --ordered

A Process Suspended For Longer Than Its Lease Answers Nothing Twice
    [Template]    One Stands Still, And The Other Goes On
    PostgreSQL
    Valkey

A Process Suspended Over SQLite May Delay The Others, But Answers Nothing Twice Either
    [Documentation]    Where it was stopped within a transaction, no other gets at the file.
    Make A Folder And A Journal    SQLite
    File Holds Numbers    in.jsonl    300
    Each Process Answers At Most    60
    ${first}=    Start The Run    --resume    -j    4
    Wait Until It Says    started on    times=20
    Send Signal    SIGSTOP
    Each Process May Answer All
    ${second}=    Start The Run    --resume    -j    4
    Wait For A While    100
    Turn To    ${first}
    Send Signal    SIGCONT
    It Ends With Status    0
    It Complained Of Nothing
    Turn To    ${second}
    It Ends With Status    0
    Each Line Has Its Record    300

The Order Of Each Thread Is Kept Across Processes And Kills
    [Template]    Threads Are Shared, And One Is Killed
    SQLite
    PostgreSQL
    Valkey

A Server That Crashes And Comes Back Costs No Line
    [Template]    The Server Crashes Meanwhile
    PostgreSQL
    Valkey


*** Keywords ***
Killed Again And Again, Each Line Is Answered Once
    [Arguments]    ${where}    @{options}
    Make A Folder And A Journal    ${where}
    File Holds Numbers    in.jsonl    400
    FOR    ${begun}    IN    1    9    17    40    23    80    5
        Each Process Answers At Most    ${{int($begun) + 16}}
        Start The Run    --resume    -j    8    @{options}
        Wait Until It Says    started on    times=${begun}
        Kill It
    END
    Each Process May Answer All
    Start The Run    --resume    @{options}
    It Ends With Status    0
    It Complained Of Nothing
    ${ordered}=    Evaluate    "--ordered" in $options
    Each Line Has Its Record    400    ${ordered}

Wait For A While
    [Documentation]    For as long as it takes to look at it so often: some milliseconds each.
    [Arguments]    ${looks}
    FOR    ${_}    IN RANGE    ${looks}
        Evaluate    sum(range(2_000_000))
    END

One Is Killed, And The Others End It
    [Arguments]    ${where}    ${count}    @{options}
    Make A Folder And A Journal    ${where}
    File Holds Numbers    in.jsonl    600
    Each Process Answers At Most    100
    ${all}=    Create List
    FOR    ${_}    IN RANGE    ${count}
        ${it}=    Start The Run    --resume    -j    4    @{options}
        Append To List    ${all}    ${it}
    END
    FOR    ${it}    IN    @{all}
        Turn To    ${it}
        Wait Until It Says    started on    times=10
    END
    Turn To    ${all}[0]
    Kill It
    Each Process May Answer All
    FOR    ${it}    IN    @{all}[1:]
        Turn To    ${it}
        It Ends With Status    0
        It Complained Of Nothing
    END
    ${ordered}=    Evaluate    "--ordered" in $options
    Each Line Has Its Record    600    ${ordered}

One Stands Still, And The Other Goes On
    [Arguments]    ${where}
    Make A Folder And A Journal    ${where}
    File Holds Numbers    in.jsonl    300
    Each Process Answers At Most    60
    ${first}=    Start The Run    --resume    -j    4
    Wait Until It Says    started on    times=20
    Send Signal    SIGSTOP
    Each Process May Answer All
    ${second}=    Start The Run    --resume    -j    4
    Status Comes To    answered == 300
    Turn To    ${first}
    Send Signal    SIGCONT
    It Ends With Status    0
    It Complained Of Nothing
    Turn To    ${second}
    It Ends With Status    0
    Each Line Has Its Record    300

Threads Are Shared, And One Is Killed
    [Arguments]    ${where}
    Make A Folder And A Journal    ${where}
    File Holds    in.jsonl    @{{['{"n": %d, "t": %d}' % (n, n % 7) for n in range(1, 301)]}}
    Each Process Answers At Most    60
    ${first}=    Start The Run    --resume    -j    4    --thread-key    t
    ${second}=    Start The Run    --resume    -j    4    --thread-key    t
    Wait Until It Says    started on    times=30
    Turn To    ${first}
    Kill It
    Each Process May Answer All
    Turn To    ${second}
    It Ends With Status    0
    Each Line Has Its Record    300
    ${runs}=    In The Folder    runs
    Threads Ran In Order    ${runs}    7

The Server Crashes Meanwhile
    [Arguments]    ${where}
    Make A Folder And A Journal    ${where}
    File Holds Numbers    in.jsonl    800
    Each Process Answers At Most    200
    ${first}=    Start The Run    --resume    -j    4
    ${second}=    Start The Run    --resume    -j    4
    Wait Until It Says    started on    times=10
    Turn To    ${first}
    Wait Until It Says    started on    times=10
    Restart Server    ${where}
    Each Process May Answer All
    It Ends With Status    0
    Turn To    ${second}
    It Ends With Status    0
    Each Line Has Its Record    800
