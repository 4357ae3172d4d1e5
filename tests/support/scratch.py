"""Where the databases of tests lie: in memory where the system has a place for that, else in /tmp.

No test is about a power cut, and a disk that keeps its promises costs a test more than all else it does: a clone
of a PostgreSQL database is several hundred files, a transaction on a SQLite file waits for the disk four times.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

_MEMORY = Path("/dev/shm")
# A container often has 64 MB there, which two clusters would overflow.
_ENOUGH_BYTES = 1_000_000_000


@cache
def scratch_folder() -> Path:
    """The folder to make temporary folders in; each of its users removes what it made."""
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if usable and shutil.disk_usage(_MEMORY).free >= _ENOUGH_BYTES else Path("/tmp")
