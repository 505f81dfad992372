"""What a loaded model holds, traced back to the files by value.

Names play no part: each row of a parameter is looked up by its bytes among the rows of all tensors (and the parts of rows
that tensor parallelism cuts), so a wrong renaming cannot hide.  From the rows of an FP8 weight follows the scale that must
stand beside it.
"""
import json
import os
import re

import torch
from safetensors import safe_open

F8 = torch.float8_e4m3fn
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
BLOCK, GROUP = 128, 32
CACHE_SCALES = ("k_scale", "v_scale")
# Computed anew; draft layers; what LLaVA, which takes the outputs of an earlier layer, has of its tower behind them.
UNREAD = r"rotary_emb|^mtp\.|vision_model\.post_layernorm"
SCALE_OF = {"weight": ("weight_scale_inv", "weight_scale"), "w13_weight": ("w13_weight_scale_inv", "w13_weight_scale"),
            "w2_weight": ("w2_weight_scale_inv", "w2_weight_scale")}


class Files:
    """The tensors of a checkpoint, and which of them are scales."""

    def __init__(self, path):
        index = os.path.join(path, "model.safetensors.index.json")
        names = ["model.safetensors"]
        if os.path.exists(index):
            with open(index, encoding="utf-8") as f:
                names = sorted(set(json.load(f)["weight_map"].values()))
        self.tensors = {}
        for name in names:
            with safe_open(os.path.join(path, name), "pt") as f:
                self.tensors.update({k: f.get_tensor(k) for k in f.keys()})
        self.scales = {}
        for name, tensor in self.tensors.items():
            for ending in ("_scale_inv", "_scale"):
                if tensor.dtype == F8 and name + ending in self.tensors:
                    self.scales[name] = name + ending


def rows_of(tensor):
    """The rows of a matrix as bytes."""
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    width = len(raw) // max(tensor.shape[0], 1)
    return [raw[i * width:(i + 1) * width] for i in range(tensor.shape[0])]


class Index:
    """Bytes of a row (or of a cut of one) -> where it lies: (tensor, expert, row, first column, transposed)."""

    def __init__(self, files, ways):
        self.files, self.places, self.vectors = files, {}, {}
        for name, tensor in files.tensors.items():
            if name in files.scales.values():
                continue
            for dtype in {tensor.dtype, *(FLOATS if tensor.dtype in FLOATS else ())}:
                self.add(name, tensor.to(dtype), sorted({1, ways}))

    def add(self, name, tensor, ways):
        if tensor.dim() < 2:
            # Cut in ways, and so is each of the parts of a bias that is fused on disk.
            for n in (w for w in {*ways, *(3 * w for w in ways)} if tensor.numel() % w == 0):
                for part in tensor.reshape(n, -1):
                    self.vectors.setdefault((tensor.dtype, rows_of(part[None])[0]), []).append(name)
        elif tensor.dim() == 3:
            for expert, matrix in enumerate(tensor):
                self.cut(name, expert, matrix, ways, False)
                self.cut(name, expert, matrix.t(), ways, True)
        self.cut(name, None, tensor.reshape(tensor.shape[0], -1) if tensor.dim() else tensor.reshape(1, 1), ways, False)

    def cut(self, name, expert, matrix, ways, transposed):
        for n in (w for w in ways if matrix.shape[1] % w == 0):
            width = matrix.shape[1] // n
            for part in range(n):
                for row, key in enumerate(rows_of(matrix[:, part * width:(part + 1) * width])):
                    place = (name, expert, row, part * width, transposed)
                    self.places.setdefault((matrix.dtype, key), []).append(place)

    def find(self, matrix, hint):
        """A place for each row (None where there is none): the one whose name is nearest to the parameter's."""
        words = set(re.split(r"[._]", hint))

        def nearness(place):
            return len(words & set(re.split(r"[._]", place[0])))

        return [max(self.places.get((matrix.dtype, key), [None]), key=lambda p: nearness(p) if p else 0)
                for key in rows_of(matrix)]

    def find_vector(self, vector):
        """Names of the 1-D tensors whose values, one behind the other, are this vector; None if it is none.

        Of tensors that are alike all are named: merged matrices share the scale of their inputs."""
        lengths = sorted({len(key) // vector.element_size() for dtype, key in self.vectors if dtype == vector.dtype},
                         reverse=True)
        found, at = [], 0
        while at < vector.numel():
            for n in lengths:
                names = self.vectors.get((vector.dtype, rows_of(vector[None, at:at + n])[0])) if n else None
                if names and at + n <= vector.numel():
                    found += names
                    at += n
                    break
            else:
                return None
        return found


def scale_row(files, place, width):
    """The scales that belong to a row of `width` columns at this place."""
    name, expert, row, first, transposed = place
    scale, weight = files.tensors[files.scales[name]].float(), files.tensors[name]
    if expert is not None and scale.dim() == 3:
        scale, weight = scale[expert], weight[expert]
    if transposed:
        scale, weight = scale.t(), weight.t()
    if scale.numel() == 1 and weight.numel() > BLOCK * BLOCK:
        return scale.reshape(1)
    if scale.shape[1] == 1 and scale.shape[0] == weight.shape[0]:
        return scale[row]
    if scale.shape[0] == weight.shape[0] and scale.shape[1] > -(-weight.shape[1] // BLOCK):    # MXFP8
        return scale[row, first // GROUP:(first + width) // GROUP]
    return scale[row // BLOCK, first // BLOCK:-(-(first + width) // BLOCK)]


class Trace:
    """Compares the parameters of a model with the files; `faults` is what was found."""

    def __init__(self, path, ways=1):
        self.files = Files(path)
        self.index = Index(self.files, ways)
        self.used, self.faults, self.composed, self.n_fp8 = set(), [], {}, 0
        self.ways = ways

    def parameters(self, parameters):
        """parameters: {name: tensor}; the tensors of the files that none of them holds."""
        scales = {p + s for n in parameters for p, w in [(n[:n.rfind(".") + 1], n[n.rfind(".") + 1:])]
                  for s in SCALE_OF.get(w, ()) if p + s in parameters}
        for name, tensor in parameters.items():
            if name not in scales and tensor.numel() and not self.is_added_elsewhere(name, tensor):
                self.parameter(name, tensor.detach(), parameters)
        unused = [n for n in self.files.tensors if n not in self.used]
        return [n for n in unused if not re.search(UNREAD, n)]

    def parameter(self, name, tensor, parameters):
        if tensor.dim() < 2:
            found = self.index.find_vector(tensor.reshape(-1))
            if found is None:
                self.faults.append(f"{name}: holds what no file holds")
            self.used.update(found or ())
            self.cache_scale(name, tensor)
            return
        stacked = tensor.dim() == 3 and "expert" in name
        for expert, matrix in enumerate(tensor if stacked else [tensor.reshape(tensor.shape[0], -1)]):
            self.matrix(name, matrix, expert if stacked else None, parameters)

    def matrix(self, name, matrix, expert, parameters):
        places = self.index.find(matrix, f"{name}.{expert}" if expert is not None else name)
        missing = sum(p is None for p in places)
        if missing == len(places) and self.ways > 1 and "embed" in name and not matrix.any():
            return      # of a short table the last ranks have padding only
        if missing and self.is_padding(name, places):
            places = [p for p in places if p]
        elif missing:
            self.faults.append(f"{name}: {missing} of {len(places)} rows are in no file")
            return
        names = {p[0] for p in places}
        self.used |= names
        self.composed.setdefault(name, set()).update(names)
        if matrix.dtype == F8:
            self.n_fp8 += 1
            self.scale(name, matrix, expert, places, parameters)
            self.input_scale(name, names, parameters)

    def cache_scale(self, name, tensor):
        """The scale of a layer's keys or values is that of this layer."""
        kind, layer = name.rpartition(".")[2], re.search(r"layers\.(\d+)\.", name)
        if kind in CACHE_SCALES and layer:
            wanted = [v for n, v in self.files.tensors.items() if n.endswith(kind) and layer[0] in n]
            if not wanted or not (tensor == wanted[0].to(tensor.dtype)).all():
                self.faults.append(f"{name}: is not the scale of {layer[0]}")

    def input_scale(self, name, names, parameters):
        """What the inputs are divided by: that of a tensor from which the rows came, for each of them."""
        held = parameters.get(f"{name.rpartition('.')[0]}.input_scale")
        wanted = [self.files.tensors.get(n.rpartition(".")[0] + ".input_scale") for n in sorted(names)]
        if held is not None and wanted[0] is not None and {float(v) for v in held.reshape(-1)} != {float(v) for v in wanted}:
            self.faults.append(f"{name}: the scale of its inputs is not that of {sorted(names)}")

    def is_added_elsewhere(self, name, tensor):
        """The bias of a matrix that is cut by columns is added by one rank; the others have zeros."""
        return self.ways > 1 and name.endswith("bias") and not tensor.any()

    def is_padding(self, name, places):
        """A vocabulary is filled up with rows behind its end."""
        n = sum(p is not None for p in places)
        return re.search(r"embed|lm_head", name) and n and all(p is not None for p in places[:n])

    def scale(self, name, matrix, expert, places, parameters):
        head, _, last = name.rpartition(".")
        own = next((f"{head}.{s}" for s in SCALE_OF.get(last, ()) if f"{head}.{s}" in parameters), None)
        if not own:
            self.faults.append(f"{name}: FP8 without a parameter for its scales")
            return
        held = parameters[own].detach().float()
        held = held[expert] if expert is not None and held.shape[0] == parameters[name].shape[0] else held
        self.used |= {self.files.scales[p[0]] for p in places if p[0] in self.files.scales}
        for row, place in enumerate(places):
            wanted = scale_row(self.files, place, matrix.shape[1])
            if not same_scale(held, wanted, row, len(places)):
                self.faults.append(f"{own}: the scale of row {row} is not that of {place[0]}")
                return


def same_scale(held, wanted, row, n_rows):
    """`held` is a grid of blocks, a column for all rows, or one number for each merged part."""
    if held.numel() == 1:
        return wanted.numel() == 1 and held.reshape(()) == wanted.reshape(())
    if held.dim() == 2 and held.shape[0] == n_rows and wanted.numel() == 1:
        return held[row, 0] == wanted[0]
    if held.dim() == 2:
        step = -(-n_rows // held.shape[0])      # blocks that parallelism cuts are kept as smaller ones
        line = held[row // step]
        repeat = line.numel() // max(wanted.numel(), 1)
        return wanted.numel() * repeat == line.numel() and torch.equal(line, wanted.repeat_interleave(repeat))
    return wanted.numel() == 1 and bool((held == wanted.reshape(())).any())
