# SPDX-License-Identifier: Apache-2.0
"""What examples/ci, the GitHub Action and the pre-commit hooks say, run here: ci.py TOP DIST VERSION

A runner's part is small: steps are lines for bash, inputs are put in their places, some files are named by the environment.  pip
finds the wheel in DIST.  actionlint cannot be had from a package registry, so what it would see is checked by rules.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

top, dist, version = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]
data = top / "tests/data"
work = Path(tempfile.mkdtemp(prefix="fp8q-ci-"))
temp = work / "temp"
temp.mkdir()
os.chdir(work)
environment = {"PATH": "/usr/bin:/bin", "HOME": str(work), "LC_ALL": "C.UTF-8", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(dist),
               "PIP_DISABLE_PIP_VERSION_CHECK": "1", "RUNNER_TEMP": str(temp), "GITHUB_PATH": str(temp / "path"),
               "GITHUB_STEP_SUMMARY": str(temp / "summary")}
action = yaml.safe_load((top / "tools/package/action/action.yml").read_text())


def fill(text, inputs):
    """${{ inputs.NAME }}: any other expression is an error here."""
    def value(match):
        name = re.fullmatch(r"\s*inputs\.([a-z-]+)\s*", match.group(1)).group(1)
        return inputs[name]
    return re.sub(r"\$\{\{(.*?)\}\}", value, text)


def act(**given):
    """The action's steps in their order, as a runner goes through them; the exit status of the first that fails, else 0."""
    assert set(given) <= set(action["inputs"]), set(given) - set(action["inputs"])
    inputs = {name: given.get(name, row.get("default")) for name, row in action["inputs"].items()}
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash" and "${{" not in step["run"], "inputs reach a shell through its environment only"
        subprocess.run(["shellcheck", "--shell=bash", "-"], input=step["run"], text=True, check=True)
        env = {**environment, **{name: fill(text, inputs) for name, text in step.get("env", {}).items()}}
        if (temp / "path").exists():
            env["PATH"] = ":".join((temp / "path").read_text().split()[::-1]) + ":" + env["PATH"]
        done = subprocess.run(["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        (work / "said").write_bytes(done.stdout)
        if done.returncode != 0:
            return done.returncode
    return 0


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: exit status {found}, expected {expected}\n{(work / 'said').read_text()}")
    print(f"{what}: exit status {found}")


def shell(lines, path):
    return subprocess.run(["bash", "-e", "-c", "\n".join(lines)], env={**environment, "PATH": path}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


# What a user's repository holds: the models, a lock, a policy, evidence, results of a task.
package = f"fp8q=={version}"
expect("action without a checkpoint", act(checkpoint="nothing", package=package), 3)
program = temp / "fp8q/bin/fp8q"
for path in ("ci", "results/base", "results/fp8"):
    os.makedirs(path)
shutil.copytree(data / "checkpoints/qwen2", "model", symlinks=False)
subprocess.run([program, "quantize", "-q", "model", "model-FP8", "--lock", "ci/fp8q.lock"], check=True)
subprocess.run([program, "eval", "-q", "model", "model-FP8", "--inputs", data / "eval/text.inputs.safetensors", "--decompose", "-o",
                "results/eval.json"], check=True)
Path("ci/gate.json").write_text('{"schema": "fp8q-policy/1", "eval": {"min_tokens": 50, "kld_vs_floor": 20},\n'
                                ' "tasks": {"margin": 0.2, "required": ["libero"]}}\n')
for name, lost in (("base", 7), ("fp8", 11)):
    Path(f"results/{name}.csv").write_text("id,score\n" + "".join(f"{i},{int(i != lost)}\n" for i in range(400)))

# The action: verify, and gate.
expect("action: verify", act(checkpoint="model-FP8", source="model", lock="ci/fp8q.lock", package=package), 0)
assert "<testsuite " in Path("fp8q.xml").read_text()
gate = {"checkpoint": "model-FP8", "source": "model", "lock": "ci/fp8q.lock", "policy": "ci/gate.json", "junit": "gate.xml",
        "arguments": "--evidence\nresults/eval.json\n--task\nlibero:results/base.csv:results/fp8.csv\n", "package": package}
expect("action: gate", act(**gate), 0)
assert "|" in (temp / "summary").read_text() and "<testsuite " in Path("gate.xml").read_text()
expect("action: gate without evidence", act(**{**gate, "arguments": ""}), 5)
shutil.copytree("model-FP8", "broken")
with open("broken/model-00001-of-00001.safetensors", "r+b") as file:
    file.seek(70000)
    file.write(b"\1\2\3")
expect("action: verify of a broken checkpoint", act(checkpoint="broken", package=package), 1)

# The workflow: it uses an action that is there, with inputs that it has.
workflow = yaml.safe_load((top / "examples/ci/github.yml").read_text())
used = [step for job in workflow["jobs"].values() for step in job["steps"] if "fp8q" in step.get("uses", "")]
assert len(used) == 1 and workflow["permissions"] == {"contents": "read"}
place = used[0]["uses"].split("@")[0].split("/", 2)[2]
assert (top / place / "action.yml").exists() and set(used[0]["with"]) <= set(action["inputs"]), used
assert used[0]["with"]["package"] == package and used[0]["uses"].endswith(f"@v{version}"), "another version than fp8q.h has"

# Its words and GitLab's lines, as they stand; only the results of the tasks are stood in for.
stand_in = {"libero:results/base/eval_info.json:results/fp8/eval_info.json": "libero:results/base.csv:results/fp8.csv",
            "gsm8k:results/base/samples_gsm8k.jsonl:results/fp8/samples_gsm8k.jsonl": "gsm8k:results/base.csv:results/fp8.csv"}


def stood(text):
    for theirs, ours in stand_in.items():
        assert theirs in text, theirs
        text = text.replace(theirs, ours)
    return text


expect("github.yml", act(**{**used[0]["with"], "arguments": stood(used[0]["with"]["arguments"])}), 0)
Path("ci/fetch-models.sh").write_text("#!/bin/sh\ntest -d model-FP8\n")
os.chmod("ci/fetch-models.sh", 0o755)
job = yaml.safe_load((top / "examples/ci/gitlab.yml").read_text())["gate"]
subprocess.run([sys.executable, "-m", "venv", "gitlab"], check=True)
done = shell(job["before_script"] + [stood(line) for line in job["script"]], f"{work}/gitlab/bin:/usr/bin:/bin")
(work / "said").write_bytes(done.stdout)
expect("gitlab.yml", done.returncode, 0)
assert Path(job["artifacts"]["reports"]["junit"]).exists()

# The hooks, by pre-commit itself.
manifest = top / ".pre-commit-hooks.yaml"
tool = [str(Path(sys.executable).parent / "pre-commit")]
subprocess.run(tool + ["validate-manifest", str(manifest)], check=True)
hooks = {hook["id"]: hook for hook in yaml.safe_load(manifest.read_text())}
subprocess.run(["git", "init", "-q", "."], check=True)


def commit_hooks(**arguments):
    rows = [{**hooks[name.replace("_", "-")], "args": words} for name, words in arguments.items()]
    Path(".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": rows}]}))
    subprocess.run(["git", "add", ".pre-commit-config.yaml", "model-FP8", "ci"], check=True)
    done = subprocess.run(tool + ["run", "--all-files"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**environment, "PATH": f"{temp}/fp8q/bin:/usr/bin:/bin"})
    (work / "said").write_bytes(done.stdout)
    return done.returncode


expect("pre-commit", commit_hooks(fp8q_verify=["model-FP8", "--lock", "ci/fp8q.lock"], fp8q_lock=["ci/fp8q.lock", "model"]), 0)
expect("pre-commit: a broken checkpoint", commit_hooks(fp8q_verify=["broken"]), 1)
expect("pre-commit: a wider lock", commit_hooks(fp8q_lock=["ci/fp8q.lock", "model", "--include", "lm_head", "--allow-unmatched"]), 1)
os.chdir("/")
shutil.rmtree(work)
