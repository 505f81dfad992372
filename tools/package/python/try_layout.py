# SPDX-License-Identifier: Apache-2.0
"""Every struct of the module as the C compiler sees it: try_layout.py FP8Q.h (needs cc, and FP8Q_LIBRARY)."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fp8q import _native  # noqa: E402

header = os.path.abspath(sys.argv[1])
with open(header) as file:
    text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)


def members(name):
    """Names of the members of a struct of the header, in their order."""
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.DOTALL).group(1)
    names = []
    for declaration in body.split(";")[:-1]:
        # A pointer to a function has its name in the first brackets.
        function = re.search(r"\(\*(\w+)\)", declaration)
        names += [function.group(1)] if function else [re.search(r"(\w+)(\[\d+\])?\s*$", part).group(1)
                                                       for part in declaration.split(",")]
    return names


expected, lines = [], []
wrong = []
for name, struct in _native.STRUCTS.items():
    mine = [member for member, _ in struct._fields_]
    if members(name) != mine:
        wrong.append(f"{name}: the header has {members(name)}, the module {mine}")
    expected.append(f"{name} {_native.ctypes.sizeof(struct)}")
    lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
    for member, _ in struct._fields_:
        field = getattr(struct, member)
        expected.append(f"{name}.{member} {field.offset} {field.size}")
        lines.append(f'printf("{name}.{member} %zu %zu\\n", offsetof(struct {name}, {member}), '
                     f'sizeof(((struct {name} *)0)->{member}));')
expected += [f"{number} {name}" for number, name in enumerate(_native.DTYPES)]
lines.append('for (int i = 0; i < FP8Q_N_DTYPES; i++) printf("%d %s\\n", i, fp8q_dtype_name((enum fp8q_dtype)i));')

with tempfile.TemporaryDirectory(prefix="fp8q-layout-") as work:
    with open(f"{work}/layout.c", "w") as file:
        file.write(f'#include "{header}"\n#include <stdio.h>\nint main(void) {{ {" ".join(lines)} return 0; }}\n')
    subprocess.run(["cc", "-std=c11", f"{work}/layout.c", os.environ["FP8Q_LIBRARY"], "-o", f"{work}/layout"], check=True)
    found = subprocess.run([f"{work}/layout"], capture_output=True, text=True, check=True,
                           env={"LD_LIBRARY_PATH": os.path.dirname(os.environ["FP8Q_LIBRARY"])}).stdout.splitlines()
wrong += [f"C: {c}; Python: {p}" for c, p in zip(found, expected) if c != p]
print("\n".join(wrong) or f"{len(_native.STRUCTS)} structs as in {os.path.basename(header)}")
sys.exit(bool(wrong) or len(found) != len(expected))
