*** Settings ***
Documentation       Agents behind a real MCP server, asked by the SDK's own client in a process of its
...                 own: over standard input and output, and over streamable HTTP; as the protocol
...                 is since 2026 (auto), and with the handshake it had before 2026 (legacy).
Resource            resources/processes.resource
Test Timeout        3 minutes
Test Setup          Make A Folder
Test Teardown       No Process Is Left


*** Variables ***
${HANDSHAKE}        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "robot", "version": "1"}}}
${INITIALIZED}      {"jsonrpc": "2.0", "method": "notifications/initialized"}
${HUGE CALL}        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ann", "arguments": {"message": "say ${{ "x" * 1_000_000 }}"}}}


*** Test Cases ***
# -- asked and answered

A Client Finds The Agents, And Each Answers
    [Template]    Agents Are Found And Answer
    auto      stdio
    auto      http
    legacy    stdio
    legacy    http

Agents Run Concurrently, Each On One Message At A Time
    [Template]    Agents Are Asked At Once
    auto      stdio
    auto      http
    legacy    stdio
    legacy    http

A Message That Hangs, One That Fails And One That Is Empty Are Answered With An Error
    [Template]    Errors Reach The Caller
    auto      stdio
    auto      http
    legacy    stdio
    legacy    http

An Answer That Cannot Be Encoded Is An Error Of That Call, And The Server Continues
    [Template]    A Call Goes Wrong Beside Another
    auto      stdio    half         the answer cannot be encoded
    auto      http     half         the answer cannot be encoded
    legacy    stdio    half         the answer cannot be encoded
    legacy    http     half         the answer cannot be encoded

An Agent That Exits, Or Interrupts, Ends Its Own Run And Not The Server
    [Template]    A Call Goes Wrong Beside Another
    auto      stdio    exit         agent 'bob' failed with SystemExit
    legacy    http     exit         agent 'bob' failed with SystemExit
    auto      http     interrupt    agent 'bob' failed with KeyboardInterrupt

Output That An Agent Prints Is Not Among The Messages
    Start Client    auto    stdio
    Send Lines    1 ann print {"jsonrpc": "2.0"}    2 ann say hello
    Answer Is    1    printed
    Answer Is    2    hello
    Wait Until It Says    ^{"jsonrpc": "2.0"}$
    The Client Leaves

An Invalid Line Affects No Other
    Start Program    mcp_agents.py    stdio
    Send Lines    no message at all    {"jsonrpc": "2.0"    ${HANDSHAKE}
    Wait Until It Prints    "id":1.*protocolVersion
    End Its Input
    It Ends With Status    0

A Server In Another Thread Than The Main One Ends With Its Input
    Start Program    mcp_agents.py    thread
    Send Lines    ${HANDSHAKE}
    Wait Until It Prints    "id":1.*protocolVersion
    End Its Input
    It Ends With Status    0
    It Said    returned
    It Complained Of Nothing

# -- clients that give up, die or freeze

A Client That Cancels Its Call Cancels The Run
    [Template]    A Call Is Cancelled
    auto      stdio
    auto      http
    legacy    stdio
    legacy    http

A Client That Is Killed Ends Its Run, And Delays No Other
    [Template]    A Client Is Killed
    auto
    legacy

A Client That Is Killed Ends The Server That It Has Started, Whose Run Is Cancelled
    [Template]    The Parent Of A Server Is Killed
    auto
    legacy

A Client That Is Frozen Delays No Other
    ${server}    ${url}=    Start Server
    ${frozen}=    Start Client    auto    ${url}
    Send Lines    1 hasty wait
    Turn To    ${server}
    Wait Until It Says    hasty begins wait
    Turn To    ${frozen}
    Send Signal    SIGSTOP
    Start Client    auto    ${url}
    Send Lines    1 ann say hello    2 hasty say hello
    Answer Is    1    hello
    Answer Is    2    hello
    The Client Leaves
    Turn To    ${frozen}
    Send Signal    SIGCONT
    Answer Tells Of An Error    1    did not end within 5.0 s
    The Client Leaves
    Server Ends    ${server}

A Client That Sends Half A Request Delays No Other, Nor The Shutdown
    ${server}    ${url}=    Start Server
    ${half}=    Connect And Send    ${url}    POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le
    Start Client    auto    ${url}
    Send Lines    1 ann say hello
    Answer Is    1    hello
    The Client Leaves
    Server Ends    ${server}
    Evaluate    $half.close()

# -- signals

A Signal Ends An HTTP Server Once The Calls In Flight Are Answered
    [Template]    Calls In Flight Are Answered
    auto      SIGTERM
    auto      SIGINT
    legacy    SIGTERM

Calls That Take Longer Than The Grace Are Cancelled, And Answered With An Error
    [Template]    Calls In Flight Are Cancelled
    auto      0      ${1}
    auto      0.2    ${1}
    legacy    0.2    ${1}

A Second Signal Cancels The Calls In Flight At Once
    [Template]    Calls In Flight Are Cancelled
    auto      3600    ${2}
    legacy    3600    ${2}

A Signal In The Middle Of A Run Ends The Server All The Same
    [Template]    A Run Is Interrupted By A Signal
    stdio
    http

Not Even A Run That Blocks, Or Will Not Be Cancelled, Outlives A Signal
    [Template]    A Run Holds Up The End
    persist
    block

Not Even A Client That Does Not Read Keeps Its Server From Ending
    Start Program    mcp_agents.py    stdio    0    0.5    reads=${False}
    Send Lines    ${HANDSHAKE}    ${INITIALIZED}    ${HUGE CALL}
    Wait Until It Says    ann ends say
    Send Signal    SIGTERM
    It Ends With Status    ${{-signal.SIGALRM}}

A Signal Ends A Stdio Server Whose Input Is Silent
    [Template]    A Silent Server Is Signalled
    SIGTERM
    SIGINT

A Signal Ends A Stdio Server, And The Calls In Flight Are Answered With An Error
    [Template]    A Stdio Server Is Signalled
    auto
    legacy


*** Keywords ***
Start Server
    [Documentation]    Start an HTTP server; returns it and its address.
    [Arguments]    ${grace}=60    ${last}=15    ${measured}=${True}
    ${server}=    Start Program    mcp_agents.py    http    ${grace}    ${last}    measured=${measured}
    ${line}=    Wait Until It Says    serving agents at
    RETURN    ${server}    ${line.split()[-1]}

Start Client
    [Documentation]    Start the SDK's client, and with ``stdio`` a server through it. Coverage is
    ...    not measured: it would double the time of their imports.
    [Arguments]    ${mode}    ${where}
    ${client}=    Start Program    mcp_client.py    ${mode}    ${where}    measured=${False}
    Wait Until It Prints    connected
    RETURN    ${client}

Connect Over
    [Documentation]    Start a client, and a server one way or the other; returns client and server,
    ...    which are the same where the client has started it: they share standard error. Neither is
    ...    measured: what they reach is reached by the servers that are signalled, and in Behave.
    [Arguments]    ${mode}    ${transport}    ${grace}=60
    IF    "${transport}" == "http"
        ${server}    ${url}=    Start Server    ${grace}    measured=${False}
        ${client}=    Start Client    ${mode}    ${url}
    ELSE
        ${client}=    Start Client    ${mode}    stdio
        ${server}=    Set Variable    ${client}
    END
    RETURN    ${client}    ${server}

Disconnect
    [Arguments]    ${client}    ${server}
    Turn To    ${client}
    The Client Leaves
    IF    $client is not $server    Server Ends    ${server}

The Client Leaves
    End Its Input
    It Ends With Status    0

Server Ends
    [Documentation]    With a signal, if it has not ended by one already.
    [Arguments]    ${server}    ${signal}=SIGTERM
    Turn To    ${server}
    IF    $signal    Send Signal    ${signal}
    It Ends With Status    0
    It Said    returned
    It Complained Of Nothing

Signal The Server
    [Documentation]    It may be a child of the client, which says its number all the same.
    [Arguments]    ${signal}
    ${line}=    Wait Until It Says    ^pid
    Evaluate    os.kill(int($line.split()[1]), signal.${signal})

Open The Gate
    [Documentation]    Let the message ``pass`` be answered.
    Signal The Server    SIGUSR1

Answer To
    [Arguments]    ${number}
    ${line}=    Wait Until It Prints    "number": "${number}"
    RETURN    ${{json.loads($line)}}

Answer Is
    [Arguments]    ${number}    ${text}
    ${answer}=    Answer To    ${number}
    Should Be Equal    ${answer}    ${{dict(number=$number, error=False, text=$text)}}

Answer Tells Of An Error
    [Arguments]    ${number}    ${text}
    ${answer}=    Answer To    ${number}
    Should Be True    ${answer}[error]
    Should Contain    ${answer}[text]    ${text}
    Should Not Contain    ${answer}[text]    Traceback

Connect And Send
    [Arguments]    ${url}    ${text}
    ${address}=    Evaluate    urllib.parse.urlsplit($url)
    ${connection}=    Evaluate    socket.create_connection(($address.hostname, $address.port))
    ${bytes}=    Evaluate    $text.encode()
    Evaluate    $connection.sendall($bytes)
    RETURN    ${connection}

# -- templates

Agents Are Found And Answer
    [Arguments]    ${mode}    ${transport}
    ${client}    ${server}=    Connect Over    ${mode}    ${transport}
    ${connected}=    Wait Until It Prints    connected
    Should Be True    ("2025" in $connected) == ($mode == "legacy")
    Send Lines    list
    ${line}=    Wait Until It Prints    tools
    Should Be Equal    ${{list(json.loads($line)["tools"])}}    ${{["ann", "bob", "hasty"]}}
    Send Lines    1 ann say hello    2 bob say grüezi    3 hasty say {"n": 1}
    Answer Is    1    hello
    Answer Is    2    grüezi
    Answer Is    3    {"n": 1}
    Disconnect    ${client}    ${server}

Agents Are Asked At Once
    [Documentation]    Who meets answers only if the other is on at the same time.
    [Arguments]    ${mode}    ${transport}
    ${client}    ${server}=    Connect Over    ${mode}    ${transport}
    Send Lines    1 ann meet    2 bob meet
    Answer Is    1    met
    Answer Is    2    met
    Send Lines    3 ann pass
    Turn To    ${server}
    Wait Until It Says    ann begins pass
    Turn To    ${client}
    Send Lines    4 ann say late    5 bob say hello
    Answer Is    5    hello
    Turn To    ${server}
    It Did Not Say    ann begins say
    Open The Gate
    Turn To    ${client}
    Answer Is    3    passed
    Answer Is    4    late
    Turn To    ${server}
    Wait Until It Says    ann begins say late
    ${said}=    What It Said
    Should Be True    $said.index("ann ends pass") < $said.index("ann begins say late")
    Disconnect    ${client}    ${server}

Errors Reach The Caller
    [Arguments]    ${mode}    ${transport}
    ${client}    ${server}=    Connect Over    ${mode}    ${transport}
    Send Lines    1 hasty wait    2 bob fail swordfish    3 bob nonsense    4 nobody say hello
    Answer Tells Of An Error    1    did not end within 5.0 s
    Answer Tells Of An Error    2    agent 'bob' failed with LookupError; see the log of the server
    Answer Tells Of An Error    3    agent 'bob' failed with AttributeError
    ${answer}=    Answer To    4
    Should Contain    ${{str($answer)}}    Unknown tool
    ${printed}=    What It Printed
    Should Not Contain    ${printed}    swordfish
    Send Lines    5 hasty say hello    6 bob say hello
    Answer Is    5    hello
    Answer Is    6    hello
    The Client Leaves
    Turn To    ${server}
    Wait Until It Says    LookupError: swordfish
    IF    $client is not $server
        Send Signal    SIGTERM
        It Ends With Status    0
    END

A Call Goes Wrong Beside Another
    [Arguments]    ${mode}    ${transport}    ${task}    ${text}
    ${client}    ${server}=    Connect Over    ${mode}    ${transport}
    Send Lines    1 ann pass
    Turn To    ${server}
    Wait Until It Says    ann begins pass
    Turn To    ${client}
    Send Lines    2 bob ${task}
    Answer Tells Of An Error    2    ${text}
    Send Lines    3 bob say hello
    Answer Is    3    hello
    Turn To    ${server}
    Open The Gate
    Turn To    ${client}
    Answer Is    1    passed
    The Client Leaves
    IF    $client is not $server
        Turn To    ${server}
        Send Signal    SIGTERM
        It Ends With Status    0
    END

A Call Is Cancelled
    [Arguments]    ${mode}    ${transport}
    ${client}    ${server}=    Connect Over    ${mode}    ${transport}
    Send Lines    1 ann wait
    Turn To    ${server}
    Wait Until It Says    ann begins wait
    Turn To    ${client}
    Send Lines    2 ann say hello    cancel 1
    Answer Is    2    hello
    Turn To    ${server}
    Wait Until It Says    ann gives up wait
    Wait Until It Says    ann ends wait
    Disconnect    ${client}    ${server}

A Client Is Killed
    [Arguments]    ${mode}
    ${server}    ${url}=    Start Server
    ${client}=    Start Client    ${mode}    ${url}
    Send Lines    1 ann wait
    Turn To    ${server}
    Wait Until It Says    ann begins wait
    Turn To    ${client}
    Send Signal    SIGKILL
    It Ends With Status    -9
    Turn To    ${server}
    Wait Until It Says    ann ends wait
    It Said    ann gives up wait
    Start Client    ${mode}    ${url}
    Send Lines    1 ann say hello
    Answer Is    1    hello
    The Client Leaves
    Server Ends    ${server}

The Parent Of A Server Is Killed
    [Documentation]    That it has ended shows in its standard error, which server and client share.
    [Arguments]    ${mode}
    Start Client    ${mode}    stdio
    Send Lines    1 ann wait
    Wait Until It Says    ann begins wait
    Send Signal    SIGKILL
    It Ends With Status    -9
    It Said    ann gives up wait    ann ends wait    returned
    # From 3.13 the interpreter may tell of the SDK's buffer, that nobody takes it any more.
    It Did Not Say    Traceback

Calls In Flight Are Answered
    [Arguments]    ${mode}    ${signal}
    ${server}    ${url}=    Start Server    grace=3600
    ${client}=    Start Client    ${mode}    ${url}
    # With its first answer, the client would ask for the tools, of a server that may have ended.
    Send Lines    list
    Wait Until It Prints    tools
    Send Lines    1 ann pass
    Turn To    ${server}
    Wait Until It Says    ann begins pass
    Send Signal    ${signal}
    Wait Until It Says    stopping, with 1 calls in flight
    Turn To    ${client}
    Send Lines    2 bob say hello
    Answer Tells Of An Error    2    the server is stopping
    Turn To    ${server}
    Open The Gate
    Turn To    ${client}
    Answer Is    1    passed
    The Client Leaves
    Server Ends    ${server}    signal=

Calls In Flight Are Cancelled
    [Arguments]    ${mode}    ${grace}    ${signals}
    ${server}    ${url}=    Start Server    ${grace}
    ${client}=    Start Client    ${mode}    ${url}
    Send Lines    1 ann wait    2 ann wait
    Turn To    ${server}
    Wait Until It Says    ann hears wait    times=2
    Wait Until It Says    ann begins wait
    Send Signal    SIGTERM
    IF    ${signals} > 1
        Wait Until It Says    stopping
        Send Signal    SIGTERM
    END
    Turn To    ${client}
    Answer Tells Of An Error    1    the run of agent 'ann' was cancelled: the server is stopping
    Answer Tells Of An Error    2    the run of agent 'ann' was cancelled: the server is stopping
    The Client Leaves
    Server Ends    ${server}    signal=
    It Said    ann gives up wait

A Silent Server Is Signalled
    [Arguments]    ${signal}
    Start Program    mcp_agents.py    stdio
    Send Lines    ${HANDSHAKE}    ${INITIALIZED}
    Wait Until It Prints    "id":1.*protocolVersion
    Send Signal    ${signal}
    It Ends With Status    0
    It Said    returned
    It Complained Of Nothing

A Stdio Server Is Signalled
    [Arguments]    ${mode}
    Start Client    ${mode}    stdio
    Send Lines    1 ann wait    2 bob wait
    Wait Until It Says    begins wait    times=2
    Signal The Server    SIGTERM
    Answer Tells Of An Error    1    the run of agent 'ann' was cancelled: the server is stopping
    Answer Tells Of An Error    2    the run of agent 'bob' was cancelled: the server is stopping
    Wait Until It Says    ^returned$
    The Client Leaves
    It Complained Of Nothing

A Run Is Interrupted By A Signal
    [Documentation]    The handler runs on top of the run: the end of that must not end the stopping.
    [Arguments]    ${transport}
    ${client}    ${server}=    Connect Over    auto    ${transport}    grace=0
    Send Lines    1 ann signal SIGTERM
    Answer Tells Of An Error    1    the run of agent 'ann' was cancelled: the server is stopping
    Turn To    ${server}
    Wait Until It Says    ^returned$
    Turn To    ${client}
    The Client Leaves
    IF    $client is not $server    Server Ends    ${server}    signal=

A Run Holds Up The End
    [Arguments]    ${task}
    ${server}    ${url}=    Start Server    grace=0    last=0.5
    ${client}=    Start Client    auto    ${url}
    Send Lines    1 ann ${task}
    Turn To    ${server}
    Wait Until It Says    ann begins ${task}
    Send Signal    SIGTERM
    It Ends With Status    ${{-signal.SIGALRM}}
    Turn To    ${client}
    End Its Input
    It Has Ended
