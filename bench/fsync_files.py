#!/usr/bin/env python3
"""fsync_files.py PATH...: flushes files, and those below directories, to disk.  For fair timing of cp."""
import os
import sys

for top in sys.argv[1:]:
    names = [top]
    if os.path.isdir(top):
        names = [os.path.join(root, name) for root, _, files in os.walk(top) for name in files]
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
