"""A graph whose module is never done importing."""

import sys
import threading

print("importing", file=sys.stderr, flush=True)
threading.Event().wait()
