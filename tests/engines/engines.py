"""How each engine decides whether a module is quantized, written anew from the rules that docs/reference/format.md states.

A matcher answers True for a module that the engine builds in high precision.  Modules are named as the engine
names them; `fused` maps the last component of a merged module to those of its parts.
"""
import fnmatch
import re


class Split(Exception):
    """Some but not all parts of a fused module are listed: the engine refuses the checkpoint."""


def first_key(settings, *keys):
    return next((settings[k] for k in keys if k in settings), [])


def first_filled(settings, *keys):
    return next((settings[k] for k in keys if settings.get(k)), [])


def parts_of(module, fused):
    head, dot, last = module.rpartition(".")
    return [head + dot + part for part in fused[last]] if last in fused else None


def agree(module, answers):
    if len(set(answers)) > 1:
        raise Split(module)
    return answers[0]


# ---- vLLM ----------------------------------------------------------------------------------------

def renamed(name, mapper):
    """Prefixes in their order, each on the result of the one before."""
    for old, new in mapper:
        if name.startswith(old):
            name = new + name[len(old):]
    return name


class VllmFp8:
    """Whole paths, after the model's renaming; fused modules by their parts; experts by substring."""

    def __init__(self, settings, mapper=(), fused_name_first=False):
        self.entries = {renamed(e, mapper) for e in first_filled(settings, "ignored_layers", "modules_to_not_convert")}
        self.fused_name_first = fused_name_first

    def skips(self, module, fused):
        if self.fused_name_first and module in self.entries:
            return True
        parts = parts_of(module, fused)
        if parts:
            return agree(module, [p in self.entries for p in parts])
        if "experts" in module:
            return any(module in entry for entry in self.entries if "experts" in entry)
        return module in self.entries


class VllmCompressed:
    """Whole paths (renamed) or re.match (not renamed); fused modules by their parts."""

    def __init__(self, settings, mapper=()):
        self.entries = [e if e.startswith("re:") or "." not in e else renamed(e, mapper) for e in settings["ignore"]]

    def one(self, module):
        return any(re.match(e[3:], module) if e.startswith("re:") else e == module for e in self.entries)

    def skips(self, module, fused):
        parts = parts_of(module, fused)
        if parts and not self.one(module):
            return agree(module, [self.one(p) for p in parts])
        return self.one(module)


# ---- SGLang --------------------------------------------------------------------------------------

SGLANG_FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


class SglangFp8:
    """Dotted boundaries: equal, a prefix, or a run of components; each entry with and without `model.`.

    From 0.5.23 on experts are also skipped when their prefix is part of an entry with "experts".
    """

    def __init__(self, settings, mapper=()):
        given = first_key(settings, "ignored_layers", "modules_to_not_convert")
        both = set()
        for entry in given:
            bare = entry[len("model."):] if entry.startswith("model.") else entry
            both |= {entry, bare, "model." + bare}
        self.entries = {renamed(e, mapper) for e in both}

    def one(self, module):
        if "experts" in module and any(module in e for e in self.entries if "experts" in e):
            return True
        return any(module == e or module.startswith(e + ".") or f".{e}." in module or module.endswith("." + e)
                   for e in self.entries)

    def skips(self, module, fused):
        parts = parts_of(module, SGLANG_FUSED | fused)
        return agree(module, [self.one(p) for p in parts]) if parts else self.one(module)


class SglangCompressed:
    """Before 0.5.23: equal, re.match, or contained whatever the case."""

    def __init__(self, settings):
        self.entries = settings["ignore"]

    def one(self, module):
        return any(re.match(e[3:], module) if e.startswith("re:") else e.lower() in module.lower()
                   for e in self.entries)

    def skips(self, module, fused):
        parts = parts_of(module, SGLANG_FUSED | fused)
        return agree(module, [self.one(p) for p in parts]) if parts else self.one(module)


class SglangCompressedNew(SglangCompressed):
    """From 0.5.23 on: equal, re.match, or a dotted suffix; never a prefix."""

    def one(self, module):
        return any(re.match(e[3:], module) if e.startswith("re:") else module == e or module.endswith("." + e)
                   for e in self.entries)


# ---- transformers --------------------------------------------------------------------------------

class Transformers4:
    def __init__(self, settings):
        self.entries = [*settings["modules_to_not_convert"], "lm_head"]

    def skips(self, module, fused):
        return any(e in module for e in self.entries)


class Transformers5:
    def __init__(self, settings, mapper=()):
        self.entries = [renamed(e, mapper) for e in first_key(settings, "modules_to_not_convert", "ignored_layers")]

    def skips(self, module, fused):
        return any(re.match(e, module) or module.endswith(e) for e in self.entries)


class Transformers524(Transformers5):
    """A prefix ends where a component does."""

    def skips(self, module, fused):
        return any(re.match(rf"(?:{e})(?:(?<=\.)|(?=\.|$))", module) or module.endswith(e) for e in self.entries)


# ---- TensorRT-LLM --------------------------------------------------------------------------------

class TensorRt:
    """Globs on the name or, in newer versions, on any of its ancestors; `re:` by fullmatch."""
    BUILT_IN = ["*kv_b_proj*", "*k_b_proj*", "*eh_proj"]

    def __init__(self, settings, ancestors=True):
        lists = settings.get("modules_to_not_convert", []) + settings.get("ignored_layers", [])
        self.entries = [*lists, *self.BUILT_IN]
        self.ancestors = ancestors

    def skips(self, module, fused):
        components = module.split(".")
        names = [".".join(components[:n]) for n in range(1, len(components) + 1)] if self.ancestors else [module]
        return any(re.fullmatch(e[3:], n) is not None if e.startswith("re:") else fnmatch.fnmatchcase(n, e)
                   for e in self.entries for n in names)


# ---- lmdeploy ------------------------------------------------------------------------------------

class Lmdeploy:
    """A module is skipped when its whole path is part of an entry."""

    def __init__(self, settings):
        self.entries = first_filled(settings, "ignored_layers", "modules_to_not_convert")

    def skips(self, module, fused):
        return any(module in e for e in self.entries)
