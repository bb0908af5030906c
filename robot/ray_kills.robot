*** Settings ***
Documentation       Worker processes of Ray that are really killed in the middle of their runs, and
...                 the command with them: each line of the input is answered exactly once.
Library             libraries/workers.py
Test Timeout        4 minutes
Test Teardown       End What Is Left


*** Test Cases ***
Of 5,000 Messages Each Is Answered Once, Though Three Workers Are Killed
    Begin A Run    5000
    Kill The Worker Of The Record    800
    Kill The Worker Of The Record    2000
    Kill The Worker Of The Record    3200
    It Ends With Status    0
    Each Line Is Answered Once    5000
    The Records Come From At Least    5    workers
    No Worker Is Left

With A Journal, A Run Survives The Death Of Workers And Of The Command
    Begin A Run    3000    --journal    run.sqlite    --lease    1
    Kill The Worker Of The Record    500
    Kill The Command After The Record    1200
    No Worker Is Left
    Begin A Run    3000    --journal    run.sqlite    --lease    1    --resume
    It Ends With Status    0
    Each Line Is Answered Once    3000
    No Worker Is Left

SIGTERM Lets The Runs In Flight End, As Without Workers
    Begin A Run    5000
    Send SIGTERM After The Record    300
    It Ends With Status    143
    Each Record Is Ok
    No Worker Is Left
