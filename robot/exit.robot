*** Settings ***
Documentation       A program that leaves with its bridge open ends soon, with the exit status that
...                 it would have had without one, and nothing on standard error.
Resource            resources/processes.resource
Test Timeout        2 minutes
Test Teardown       No Process Is Left


*** Test Cases ***
An Open Bridge Keeps No Program From Exiting
    Leave With    idle
    It Said Nothing

A Bridge That Was Never Used Keeps No Program From Exiting
    Leave With    never_used
    It Said Nothing

Hundreds Of Runs In Flight Keep No Program From Exiting
    Leave With    endless
    It Said Nothing

A Stuck Sync Function Keeps No Program From Exiting
    Leave With    stuck
    It Said Nothing

A Stuck Sync Function That A Closed Bridge Left Behind Keeps No Program From Exiting
    Leave With    stuck_closed
    It Said Nothing

A Run That Swallows Cancellation Keeps No Program From Exiting
    Leave With    swallowing
    It Said Nothing

A Run That Blocks The Loop Keeps No Program From Exiting
    Leave With    busy
    It Said Nothing

A Bridge That Was Forgotten Keeps No Program From Exiting
    Leave With    dropped
    It Said Nothing

An Open Subscription Keeps No Program From Exiting
    Leave With    streaming
    Wait Until It Prints    RunCancelledError
    It Said Nothing

An Adopted Loop That Is Gone Keeps No Program From Exiting
    Leave With    adopted
    It Said Nothing

A Thread That Outlives The Main Thread Still Gets Its Answers
    Leave With    outliving
    Wait Until It Prints    answered 4
    It Said Nothing

The Cleanup Of A Run Is Done Before The Program Exits
    Leave With    own_cleanup
    Wait Until It Prints    cleaned up
    It Said Nothing

The Exit Status Of A Program Is Its Own
    Leave With    exits    status=7
    It Said Nothing

An Exception Leaves The Block Of A Bridge, And Nothing Else Is Printed
    Leave With    raises    status=1
    It Said    LookupError: the program's own
    It Did Not Say    During handling
    It Did Not Say    Exception ignored

Ctrl-C Leaves The Block Of A Bridge, And Nothing Else Is Printed
    Start Program    leave.py    interrupted
    Wait Until It Prints    leaving
    Send Signal    SIGINT
    It Ends With Status    -2
    It Said    KeyboardInterrupt
    It Did Not Say    During handling
    It Did Not Say    Exception ignored
