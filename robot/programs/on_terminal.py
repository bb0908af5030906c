"""Run a command with a terminal of its own: ``on_terminal.py DESCRIPTOR COMMAND...``.

Standard output stays what it was, so that the results can be told from the progress bar.
"""

from __future__ import annotations

import os
import sys

terminal = int(sys.argv[1])
output = os.dup(1)
os.login_tty(terminal)  # the controlling terminal, and standard input, output and error
os.dup2(output, 1)
os.close(output)
os.execv(sys.argv[2], sys.argv[2:])
