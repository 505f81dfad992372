#!/usr/bin/env python3
"""How far the actions of a policy move when its backbone is FP8: one file of results for each side, for `fp8q gate --task`.

    python examples/vla/action_error.py pi05 pi05-FP8 --observations observations.safetensors -o results
    fp8q gate pi05-FP8 --policy gate.json --task action:results/base.jsonl:results/fp8.jsonl

The two policies get the same observations and the same noise. A score, `action_mse`, is the mean square of the difference to
the action of the unquantized policy, over the chunk and the dimensions of the action, in the units in which the policy
predicts (normalized, for most); that of the unquantized policy itself is 0. Where an observation comes with the action that
was recorded, `demo_mse` is the distance of each policy to that one. `noise`: what another draw of the noise changes, so that one
can see how much an error matters.

Observations are what select_action() gets behind the policy's preprocessor; examples/capture_inputs.py says how they are stored.
i.cluster (U8, UTF-8) names the episode of an observation: those of one are not independent, and the gate counts them so.

FP8 is either a checkpoint as fp8q writes it, loaded by load_fp8.py, or what `fp8q dequantize` made of it: both compute the same.
"""
import argparse
import json
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from capture_inputs import load_policy, read_observations  # noqa: E402
from load_fp8 import load_fp8  # noqa: E402


def act(policy, batch, seed):
    """The chunk of actions, with noise that depends on @seed alone."""
    policy.reset()
    torch.manual_seed(seed)
    with torch.no_grad():
        return policy.predict_action_chunk(dict(batch)).float()[0]


def run(policy, observations, seed):
    """Actions of all observations, each with its own noise, and with other noise."""
    n = len(observations)
    return [(act(policy, o, seed + i), act(policy, o, seed + n + i)) for i, o in enumerate(observations)]


def mse(a, b):
    n = min(len(a), len(b))
    return float(((a[:n] - b[:n]) ** 2).mean())


def text_of(batch, key):
    """A text that stands in a file as bytes."""
    value = batch.pop(key, None)
    return None if value is None else bytes(value.reshape(-1).tolist()).decode()


def split(batch):
    """An observation, its recorded action, and the name of its episode."""
    cluster, action = text_of(batch, "cluster"), batch.pop("action", None)
    batch.pop("category", None)
    return batch, None if action is None else action[0].float(), cluster


def items(actions, base, recorded, clusters):
    """One line a result."""
    for i, ((own, _), (reference, other)) in enumerate(zip(actions, base)):
        item = {"id": str(i), "action_mse": mse(own, reference), "noise": mse(other, reference)}
        if recorded[i] is not None:
            item["demo_mse"] = mse(own, recorded[i])
        if clusters[i] is not None:
            item["cluster"] = clusters[i]
        yield item


def compare(policy, change, observations, seed=1):
    """Results of the policy, and of the policy that @change made of it, as lists of items."""
    observations, recorded, clusters = zip(*[split(dict(o)) for o in observations])
    base = run(policy, observations, seed)
    fp8 = run(change(policy), observations, seed)
    return [list(items(side, base, recorded, clusters)) for side in (base, fp8)]


def write(path, results):
    path.write_text("".join(json.dumps(item) + "\n" for item in results), encoding="utf-8")


def mean(results, key):
    values = [item[key] for item in results if key in item]
    return f"{sum(values) / len(values):.3g} (n = {len(values)})" if values else "not recorded"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("base", help="the policy, unquantized")
    parser.add_argument("fp8", help="what fp8q made of it, or dequantized again")
    parser.add_argument("--observations", required=True, help="safetensors file")
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path, help="new folder")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.output.mkdir(parents=True)
    policy = load_policy(args.base)
    base, fp8 = compare(policy, lambda p: load_fp8(p, args.fp8), read_observations(args.observations), args.seed)
    write(args.output / "base.jsonl", base)
    write(args.output / "fp8.jsonl", fp8)
    print(f"action_mse: {mean(fp8, 'action_mse')}; other noise alone: {mean(base, 'noise')}")
    print(f"demo_mse: base {mean(base, 'demo_mse')}, FP8 {mean(fp8, 'demo_mse')}")


if __name__ == "__main__":
    main()
