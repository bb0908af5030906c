*** Settings ***
Documentation       ``rxlanggraph`` in a LangGraph project, as a user of LangGraph has one: a folder
...                 with langgraph.json and .env. Graphs run by their names; what is wrong is one
...                 error; a shell completes the names.
Resource            resources/command.resource
Test Timeout        3 minutes
Test Setup          Make A Project
Test Teardown       No Process Is Left


*** Test Cases ***
A Graph Runs By Its Name, With The Variables Of The Project
    Start Command    run    agent    -i    in.jsonl    -o    out.jsonl
    End Its Input
    It Ends With Status    0
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    content    hello world
    Account Of    ${records}    lines=3

The Graph Of An Async Context Manager Is Open As Long As Its Runs Last
    Start Command    run    opened    -i    in.jsonl    -o    out.jsonl    -j    2
    End Its Input
    It Ends With Status    0
    ${records}=    Records Of    out.jsonl
    Each Has    ${records}    content    open
    ${printed}=    What It Printed
    Should Be Equal    ${printed}    opened\nclosed\n
    It Complained Of Nothing

Ctrl-C Ends A Factory That Does Not End
    Start Command    run    endless    -i    in.jsonl    -o    out.jsonl
    Wait Until It Prints    making
    Send Signal    SIGINT
    It Ends With Status    130
    It Complained Of Nothing

Graphs Are Listed, And What Is Wrong With One Is One Error
    Start Command    graphs
    End Its Input
    It Ends With Status    0
    ${printed}=    What It Printed
    Should Contain    ${printed}    agent${SPACE*2}
    Start Command    run    agnet    -i    in.jsonl
    End Its Input
    It Ends With Status    2
    It Said    langgraph.json has no graph 'agnet'; did you mean agent?
    It Complained Of Nothing
    Start Command    run    keyless    -i    in.jsonl
    End Its Input
    It Ends With Status    2
    It Said    keyless.py, line 2    NOWHERE_KEY is not set    .env
    ${said}=    What It Said
    Length Should Be    ${said.splitlines()}    1

A Shell Completes The Names Of The Project's Graphs
    Start Shell    rxlanggraph completion bash
    It Ends With Status    0
    ${printed}=    What It Printed
    Should Contain    ${printed}    complete -o nosort -F
    Start Shell
    ...    export COMP_WORDS="rxlanggraph run a" COMP_CWORD=2 _RXLANGGRAPH_COMPLETE=bash_complete; rxlanggraph
    It Ends With Status    0
    ${printed}=    What It Printed
    Should Be Equal    ${printed}    plain,agent\n

Options Come From A File, The Environment And The Command Line
    File Holds    rxlanggraph.toml    [run]    input = "in.jsonl"    output = "file.jsonl"
    Start Command    run    agent
    End Its Input
    It Ends With Status    0
    ${records}=    Records Of    file.jsonl
    Account Of    ${records}    lines=3
    Start Shell    export RXLANGGRAPH_RUN_OUTPUT=environment.jsonl; rxlanggraph run agent --quiet
    It Ends With Status    0
    It Said Nothing
    ${records}=    Records Of    environment.jsonl
    Length Should Be    ${records}    3


*** Keywords ***
Make A Project
    Make A Folder
    File Holds Numbers    in.jsonl    3
    File Holds    langgraph.json    {"dependencies": ["."], "env": ".env", "graphs": {
    ...    "agent": "./agent.py:make_agent", "opened": "./agent.py:opened",
    ...    "endless": "./agent.py:endless", "keyless": "./keyless.py:graph"}}
    File Holds    .env    WHOM="hello world"
    File Holds    keyless.py    import os    KEY = os.environ["NOWHERE_KEY"]
    File Holds    agent.py
    ...    import asyncio, contextlib, os
    ...    from langchain_core.runnables import RunnableLambda
    ...    def make_agent():
    ...    ${SPACE*4}return RunnableLambda(lambda content: os.environ["WHOM"])
    ...    @contextlib.asynccontextmanager
    ...    async def opened():
    ...    ${SPACE*4}state = {"is": "open"}
    ...    ${SPACE*4}print("opened", flush=True)
    ...    ${SPACE*4}yield RunnableLambda(lambda content: state["is"])
    ...    ${SPACE*4}state["is"] = "closed"
    ...    ${SPACE*4}print("closed", flush=True)
    ...    async def endless(config):
    ...    ${SPACE*4}print("making", flush=True)
    ...    ${SPACE*4}await asyncio.Event().wait()
