*** Settings ***
Documentation       Real LangGraph graphs, and agents, fed by eight threads at once through one
...                 bridge, in a process of their own. When it is over nothing is left: no registry
...                 entry, no asyncio task, no thread, no unresolved future. The last test
...                 is the control: the naive way under the same load leaves all of that.
Resource            resources/processes.resource
Test Timeout        3 minutes
Test Teardown       No Process Is Left


*** Test Cases ***
Runs That End By Themselves Leave Nothing Behind
    ${left}=    Weather The Storm    drained
    Should Be Equal As Integers    ${left}[submitted]    1600
    Should Be Equal As Integers    ${left}[succeeded]    1600
    Should Be Equal As Integers    ${left}[answers]    800

A Cleanup In The Middle Ends Everything That Was Submitted Before
    ${left}=    Weather The Storm    cleaned_up
    Should Be Equal As Integers    ${left}[handed_in_before]    800
    Should Be Equal As Integers    ${left}[unresolved_of_those]    0
    Should Be Equal As Integers    ${left}[asked_and_still_running]    0
    Should Be Equal As Integers    ${left}[stuck]    0
    Should Be True    ${left}[reported] >= 800
    Should Be Equal As Integers    ${left}[submitted]    1601
    Should Be Equal As Integers    ${left}[accounted]    1601
    Should Be True    ${left}[usable_after]

Subscribers That Leave In The Middle Leave No Run Behind
    ${left}=    Weather The Storm    disposed
    Should Be True    ${left}[idle_after_dispose]
    Should Be Equal As Integers    ${left}[succeeded]    0

A Loop That Ends In The Middle Leaves No Future Unresolved
    ${left}=    Weather The Storm    loop_ended
    Should Be True    ${left}[resolved]
    Should Be Equal As Integers    ${left}[answered]    1600

Every Run That Has Begun On A Loop That Ends Does Its Own Cleanup
    ${left}=    Weather The Storm    half_begun
    Should Be Equal    ${left}[begun]    ${left}[ended]

Sync Nodes And Functions Leave No Thread Behind
    ${left}=    Weather The Storm    sync_nodes
    Should Be Equal As Integers    ${left}[succeeded]    1600

Thousands Of Runs Of A Pool's Agents Leave Nothing In It But Its Agents And Their Memories
    ${left}=    Weather The Storm Of Agents    pool
    Nothing Has Grown    ${left}
    Should Be Equal As Integers    ${left}[agents]    20

Thousands Of Runs Of One Agent Leave Nothing In It
    ${left}=    Weather The Storm Of Agents    one
    Nothing Has Grown    ${left}

Control: Memories Without A Bound Are Seen To Grow
    ${left}=    Weather The Storm Of Agents    unbounded
    Should Be Equal As Integers    ${left}[grown][rxlanggraph.agent.conversation.messages.Message]    3428
    Should Be True    ${left}[blocks] >= 2000

Control: The Naive Way Misses Arriving Tasks, Leaves Them Running, And Raises
    Run Program    naive_way.py    measured=${False}
    ${left}=    What It Printed As Json
    Should Be Equal As Integers    ${left}[missed]    800
    Should Be True    ${left}[running] > 0
    Should Be True    ${left}[tasks] > 0
    Should Be Equal    ${left}[errors]    ${{["Set changed size during iteration"]}}


*** Keywords ***
Weather The Storm
    [Documentation]    Run a scenario of storm.py, and check all that must be zero afterwards.
    [Arguments]    ${scenario}
    Run Program    storm.py    ${scenario}    measured=${False}
    It Said Nothing
    ${left}=    What It Printed As Json
    Should Be Equal As Integers    ${left}[unresolved]    0
    Should Be Equal As Integers    ${left}[registry]    0
    Should Be Equal As Integers    ${left}[tasks]    0
    Should Be Empty    ${left}[threads]
    Should Be Equal As Integers    ${left}[nodes]    0
    RETURN    ${left}

Weather The Storm Of Agents
    [Documentation]    Have agents answer 2000 requests, twice; check all that does not grow anyway.
    [Arguments]    ${scenario}
    Run Program    agent_storm.py    ${scenario}    measured=${False}
    It Said Nothing
    ${left}=    What It Printed As Json
    Should Be Equal As Integers    ${left}[answered]    1714
    Should Be Equal As Integers    ${left}[failed]    286
    Should Be Equal As Integers    ${left}[tasks]    0
    Should Be Empty    ${left}[threads]
    RETURN    ${left}

Nothing Has Grown
    [Documentation]    Neither in objects of any type, nor in blocks of memory: one for each run
    ...                would be 2000.
    [Arguments]    ${left}
    Should Be Empty    ${left}[grown]
    Should Be True    ${left}[blocks] < 2000
