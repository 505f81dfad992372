"""Checks examples/cluster/kubernetes.yaml against the schemas of Kubernetes, and runs its commands.

    kubernetes.py FP8Q MAKE_CHECKPOINT

The schemas come with the package kubernetes-validate, the commands run as the pods would run them,
on this machine: all parts at the same time, and the finishing pod before any of them has ended.
"""
import filecmp
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

VERSIONS = ["1.29", "1.32", kubernetes_validate.latest_version()]


def start(job, env):
    """What the kubelet does: $(NAME) of known variables is replaced, other text stays as it is."""
    pod = job["spec"]["template"]["spec"]["containers"][0]
    args = [re.sub(r"\$\(([^)]*)\)", lambda m: env.get(m[1], m[0]), a) for a in pod["args"]]
    return subprocess.Popen(pod["command"] + args, env=env)


def main(fp8q, make_checkpoint):
    recipe = pathlib.Path(__file__).parents[2] / "tools" / "cluster" / "kubernetes.yaml"
    documents = list(yaml.safe_load_all(recipe.read_text()))
    for document in documents:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    values, parts, finish = documents
    count = parts["spec"]["completions"]
    assert count == parts["spec"]["parallelism"] == int(values["data"]["PARTS"])

    with tempfile.TemporaryDirectory(prefix="fp8q-k8s-") as top:
        os.chdir(top)
        os.mkdir("bin")
        os.symlink(fp8q, "bin/fp8q")
        subprocess.run([make_checkpoint, "tiny", "src"], check=True)
        subprocess.run([fp8q, "quantize", "-q", f"{top}/src", "whole"], check=True)
        env = {**os.environ, **values["data"], "PATH": f"{top}/bin:{os.environ['PATH']}",
               "SRC": f"{top}/src", "DST": f"{top}/dst", "WAIT": "0.2"}
        pods = [start(finish, env)]
        for index in range(count):
            pods.append(start(parts, {**env, "JOB_COMPLETION_INDEX": str(index)}))
        assert [p.wait(timeout=120) for p in pods] == [0] * (count + 1)
        names = sorted(os.listdir("whole"))
        assert names == sorted(os.listdir("dst")), os.listdir("dst")
        assert filecmp.cmpfiles("whole", "dst", names, shallow=False) == (names, [], [])
        subprocess.run([fp8q, "verify", "-q", "dst", "--source", "src"], check=True)
    print(f"{len(documents)} documents fit the schemas of {', '.join(map(str, VERSIONS))}; "
          f"{count} parts and the finishing pod gave the bytes of one run")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main(*map(os.path.abspath, sys.argv[1:3]))
