# SPDX-License-Identifier: Apache-2.0
"""Writes a wheel: wheel.py OUT_DIR VERSION PLATFORM_TAG PROGRAM LIBRARY EPOCH LICENCE...

The module of python/fp8q with the shared library inside, and the program as a script, so that it is on PATH.  Needs no
package; the same input gives the same bytes.
"""
import base64
import hashlib
import os
import sys
import time
import zipfile

out, version, tag, program, library, epoch = sys.argv[1:7]
licences = sys.argv[7:]
here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python")
info = f"fp8q-{version}.dist-info"
when = time.gmtime(int(epoch))[:6]


def read(path):
    with open(path, "rb") as file:
        return file.read()


files = {f"fp8q/{name}": (read(f"{here}/fp8q/{name}"), 0o644)
         for name in sorted(os.listdir(f"{here}/fp8q")) if name.endswith((".py", ".typed"))}
files["fp8q/libfp8q.so"] = (read(library), 0o755)
files[f"fp8q-{version}.data/scripts/fp8q"] = (read(program), 0o755)
for path in licences:
    files[f"{info}/licenses/{os.path.basename(os.path.dirname(path))}-{os.path.basename(path)}"] = (read(path), 0o644)
files[f"{info}/METADATA"] = (f"""Metadata-Version: 2.1
Name: fp8q
Version: {version}
Summary: Block-FP8 quantization of safetensors checkpoints
License: Apache-2.0
Requires-Python: >=3.8
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

""".encode() + read(f"{here}/README.md"), 0o644)
files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: fp8q\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(), 0o644)

record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
                 for name, (data, _) in files.items())
files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)

with zipfile.ZipFile(f"{out}/fp8q-{version}-py3-none-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
    for name, (data, mode) in files.items():
        entry = zipfile.ZipInfo(name, when)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, data)
