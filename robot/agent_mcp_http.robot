*** Settings ***
Documentation       An HTTP server of agents among clients that do not go on: they keep it waiting for a
...                 request, or for the rest of one, or do not read what it says.
Resource            resources/processes.resource
Library             libraries/mcp_http.py
Test Timeout        2 minutes
Test Setup          Make A Folder
Test Teardown       No Process Is Left


*** Test Cases ***
A Server With 128 Descriptors Answers Beside Two Hundred Idle Connections
    ${server}    ${url}=    Start Server    {"descriptors": 128}
    FOR    ${part}    IN    nothing    half a header    half a body    a request that is refused
        Connect And Send    ${url}    ${part}    ${200}
        ${status}=    Status Of    ${url}
        Should Be Equal    ${status}    ${200}
    END
    ${client}=    Start Program    mcp_client.py    auto    ${url}    measured=${False}
    Wait Until It Prints    connected
    Send Lines    1 ann say hello
    Wait Until It Prints    "text": "hello"
    End Its Input
    It Ends With Status    0
    Turn To    ${server}
    Server Ends

A Request That Is Late Is Dropped
    ${server}    ${url}=    Start Server    {"header_timeout": 0.2, "body_timeout": 0.3}
    FOR    ${part}    IN    nothing    half a header    half a body    a request that is refused
        ${connections}=    Connect And Send    ${url}    ${part}
        Is Dropped    ${connections}[0]
    END
    It Said    the header of a request did not arrive within 0.2 s
    It Said    the body of a request did not arrive within 0.3 s
    Wait Until Keyword Succeeds    20x    0s    Status Of    ${url}    # if this one is not late, too
    Server Ends

An Answer That Is Not Read In Time Is Dropped
    ${server}    ${url}=    Start Server    {"body_timeout": 0.3}
    ${connection}=    Call And Wait    ${url}    ann    tell 50000000
    Wait Until It Says    its answer was not read within 0.3 s
    Is Dropped    ${connection}
    Wait Until Keyword Succeeds    20x    0s    Status Of    ${url}    # if this one is not late, too
    Server Ends

When All Connections Are Busy, The Next One Is Refused With 503
    ${server}    ${url}=    Start Server    {"max_connections": 2}
    ${first}=    Call And Wait    ${url}    ann    pass
    ${second}=    Call And Wait    ${url}    ann    say hello
    Wait Until It Says    ann hears    times=2
    ${status}=    Status Of    ${url}
    Should Be Equal    ${status}    ${503}
    Send Signal    SIGUSR1
    ${status}=    Status On    ${first}
    Should Be Equal    ${status}    ${200}
    ${status}=    Status On    ${second}
    Should Be Equal    ${status}    ${200}
    ${status}=    Status Of    ${url}
    Should Be Equal    ${status}    ${200}
    Server Ends

Sessions Are Bounded, And End When They Were Idle For Too Long
    ${server}    ${url}=    Start Server    {"max_sessions": 2, "session_timeout": 2}
    A Session Begins    ${url}
    A Session Begins    ${url}
    Wait Until Keyword Succeeds    20x    0s    A Session Is Refused    ${url}    # the others may have ended
    Wait Until Keyword Succeeds    20x    0.5s    A Session Begins    ${url}
    Server Ends

*** Keywords ***
Start Server
    [Arguments]    ${options}
    ${server}=    Start Program    mcp_agents.py    http    0    15    ${options}
    ${line}=    Wait Until It Says    serving agents at
    RETURN    ${server}    ${line.split()[-1]}

Server Ends
    Send Signal    SIGTERM
    It Ends With Status    0
    It Complained Of Nothing

A Session Begins
    [Arguments]    ${url}
    ${status}=    Status Of    ${url}
    Should Be Equal    ${status}    ${200}

A Session Is Refused
    [Arguments]    ${url}
    ${status}=    Status Of    ${url}
    Should Be Equal    ${status}    ${503}
