*** Settings ***
Documentation       Eight processes share 10,000 items of one queue. Workers are killed, and paused
...                 for longer than their lease, at random moments, and once the server crashes: in
...                 the end each item is completed exactly once, its effect is entered once, by the
...                 claim that has completed it, and the counters are exact. Naive ways under the
...                 same faults lose items, or do them twice.
...
...                 The seed is printed; RXLANGGRAPH_ROBOT_SEED gives it.
Library             libraries/stores.py
Library             libraries/faults.py
Library             libraries/ledgers.py
Resource            resources/processes.resource
Test Timeout        15 minutes
Test Setup          Make A Folder
Test Teardown       No Process Is Left
Suite Teardown      Stop Servers


*** Variables ***
${ITEMS}            ${10000}


*** Test Cases ***
Workers That Are Killed And Paused Complete Each Item Exactly Once On SQLite
    Each Item Is Completed Exactly Once    SQLite

Workers That Are Killed And Paused Complete Each Item Exactly Once On PostgreSQL, Which Crashes
    Each Item Is Completed Exactly Once    PostgreSQL    restarts=${1}

Workers That Are Killed And Paused Complete Each Item Exactly Once On Valkey, Which Crashes
    Each Item Is Completed Exactly Once    Valkey    restarts=${1}

Control: Naive Ways Lose Items, And Do Items Twice, On SQLite
    Items Are Lost And Doubled    SQLite

Control: Naive Ways Lose Items, And Do Items Twice, On PostgreSQL
    Items Are Lost And Doubled    PostgreSQL

Control: Naive Ways Lose Items, And Do Items Twice, On Valkey
    Items Are Lost And Doubled    Valkey


*** Keywords ***
Each Item Is Completed Exactly Once
    [Arguments]    ${where}    ${restarts}=${0}
    ${store}=    New Store    ${where}
    Add Items    ${store}    ${ITEMS}
    ${told}=    Work Under Faults    state_worker.py    ${store}    ${ITEMS}
    ...    workers=${8}    kill=${8}    pause=${12}    restart=${restarts}
    ${account}=    Account Of    ${store}    ${ITEMS}    ${told}
    Log    ${account}    formatter=repr
    Completions Are Exact    ${account}
    The Ledger Is Exact    ${account}
    The Counter Is Exact    ${account}
    The Faults Were Felt    ${account}

Completions Are Exact
    [Documentation]    Each item is complete, none is open or dead; no two workers were told that
    ...    it was they, and the acknowledged results are kept.
    [Arguments]    ${account}
    Should Be Equal As Integers    ${account}[completed]    ${ITEMS}
    Should Be Equal As Integers    ${account}[results]    ${ITEMS}
    Should Be Equal    ${account}[open]    ${0}
    Should Be Equal    ${account}[dead]    ${0}
    Should Be Empty    ${account}[acknowledged_twice]
    Should Be Empty    ${account}[acknowledged_to_others]
    Should Be True    ${account}[acknowledged] >= ${ITEMS} - ${account}[untold]

The Ledger Is Exact
    [Documentation]    Each item has its effect, of the claim that has completed it and of no
    ...    later or earlier one; and each was tallied once.
    [Arguments]    ${account}
    Should Be Equal As Integers    ${account}[effects]    ${ITEMS}
    Should Be Empty    ${account}[effects_of_others]
    Should Be Equal As Integers    ${account}[tallied]    ${ITEMS}
    Should Be Empty    ${account}[wrong_tallies]

The Counter Is Exact
    [Documentation]    No two increments had the same answer; the lost answers are
    ...    those of workers that were killed, or had none. Each claim has counted once at most.
    [Arguments]    ${account}
    Should Be Empty    ${account}[counted_twice]
    Should Be True    0 <= ${account}[counter] - ${account}[counted] <= ${account}[untold]
    Should Be True    ${account}[counter] <= ${account}[attempts]

The Faults Were Felt
    [Documentation]    Items were claimed again, and workers that came back too late were refused.
    [Arguments]    ${account}
    Should Be True    ${account}[attempts] > ${ITEMS}
    Should Be True    ${account}[refused] > 0

Items Are Lost And Doubled
    [Documentation]    Who pops an item and is killed takes it along; who reads the list, and writes
    ...    back what is left of it, brings back what others have taken meanwhile.
    [Arguments]    ${where}
    ${store}=    New Store    ${where}
    Add Items To Lists    ${store}    ${200}
    Work Under Faults    state_naively.py    ${store}    ${400}
    ...    workers=${4}    kill=${4}    pause=${4}
    ${effects}=    Effects Of Naive Ways    ${store}    ${200}
    Log    ${effects}    formatter=repr    console=True
    Should Be True    ${effects}[popped][lost] > 0
    Should Be True    ${effects}[read][doubled] > 0
