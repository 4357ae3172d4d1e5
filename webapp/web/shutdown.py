"""Told once, when this process is asked to leave: open streams and long polls look here and end."""

from __future__ import annotations

import threading
from typing import Final

# Whatever waits for longer than a second waits on this too (`stopping.wait(…)`) or looks at it each second.
stopping: Final = threading.Event()
