"""LeRobot's own policies, small and with random weights, on a machine without its cameras, motors and data sets.

LeRobot asks for Python 3.12 and packages that no policy's network uses. Here its modules are loaded as they are, but for
three things: syntax of 3.12 is spelt as older Pythons have it, packages that are not installed are empty, and sizes of the
networks, which its code has as constants, are small.
"""
import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import types
import typing

import torch
import transformers

# Imported by LeRobot beside the networks; nothing of them is called here.
EMPTY = ("torchvision", "datasets", "cv2", "einops", "gymnasium", "lerobot.configs.train", "lerobot.envs", "lerobot.motors")
NEW_SYNTAX = ((r"^(\s*class \w+)\[([^\]]*)\]\(", r"\1(__import__('typing').Generic[\2], "),
              (r"^(\s*(?:def|class) \w+)\[[^\]]*\]", r"\1"),
              (r"^type (\w+) =", r"\1 ="))


class Empty(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if any(name == n or name.startswith(n + ".") for n in EMPTY):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


class OlderSource(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimize=-1):
        text = data.decode()
        for new, old in NEW_SYNTAX:
            text = re.sub(new, old, text, flags=re.M)
        return super().source_to_code(text.encode(), path)

    def exec_module(self, module):
        module.__dict__.update({name: typing.TypeVar(name) for name in ("T", "TInput", "TOutput")})
        super().exec_module(module)


class LeRobotModules(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if not name.startswith("lerobot."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader) and sys.version_info < (3, 12):
            spec.loader = OlderSource(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path[:0] = [EmptyModules(), LeRobotModules()]
# The package would import every policy that there is.
import lerobot  # noqa: E402
policies = types.ModuleType("lerobot.policies")
policies.__path__ = [lerobot.__path__[0] + "/policies"]
sys.modules["lerobot.policies"] = policies

from lerobot.configs.types import FeatureType, PolicyFeature  # noqa: E402

STATE_DIM, ACTION_DIM, IMAGE_SIZE, WORDS = 6, 4, 56, 300
FEATURES = dict(
    input_features={"observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, IMAGE_SIZE, IMAGE_SIZE)),
                    "observation.images.hand": PolicyFeature(FeatureType.VISUAL, (3, IMAGE_SIZE, IMAGE_SIZE)),
                    "observation.state": PolicyFeature(FeatureType.STATE, (STATE_DIM,))},
    output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
    device="cpu", chunk_size=8, n_action_steps=8)


def shaken(policy):
    """Random weights that a network can work with: matrices by their width, norms near what they were."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for p in policy.parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(p + 0.1 * noise if p.ndim < 2 else noise * p[0].numel() ** -0.5)
    return policy.eval()


def paligemma_sizes(module):
    """Sizes of PaliGemma and of the expert are constants of the module: small ones in their place."""
    from lerobot.policies import pi_gemma
    # transformers of today takes one argument less than the one that LeRobot asks for.
    if "cache_position" not in inspect.signature(pi_gemma.create_causal_mask).parameters:
        create = pi_gemma.create_causal_mask
        pi_gemma.create_causal_mask = lambda cache_position=None, **given: create(**given)
    sizes = {"gemma_2b": (256, 512), "gemma_300m": (128, 256)}
    module.get_gemma_config = lambda variant: module.GemmaConfig(
        width=sizes[variant][0], depth=3, mlp_dim=sizes[variant][1], num_heads=2, num_kv_heads=1, head_dim=64)
    mapping = transformers.models.auto.CONFIG_MAPPING

    class Small:
        def __getitem__(self, name):
            if name != "paligemma":
                return lambda **sizes: mapping[name](**sizes | dict(vocab_size=WORDS))
            return lambda: self.paligemma()

        def paligemma(self):
            config = mapping["paligemma"](
                text_config=dict(model_type="gemma", num_hidden_layers=1, vocab_size=WORDS),
                vision_config=dict(model_type="siglip_vision_model", hidden_size=32, num_hidden_layers=1,
                                   num_attention_heads=2, patch_size=14, image_size=IMAGE_SIZE), projection_dim=256)
            # The policy sets these two to constants of its own; small ones stay.
            text, vision = type(config.text_config), type(config.vision_config)
            config.text_config.__class__ = fixed(text, vocab_size=WORDS)
            config.vision_config.__class__ = fixed(vision, intermediate_size=32, projection_dim=256)
            return config
    module.CONFIG_MAPPING = Small()


def made(build):
    """The same policy each time."""
    def policy():
        torch.manual_seed(1)
        return shaken(build())
    return policy


def fixed(cls, **values):
    """A class of config of which some members cannot be set to anything else."""
    def set_member(self, name, value):
        cls.__setattr__(self, name, values.get(name, value))
    return type(cls.__name__, (cls,), {"__setattr__": set_member})


@made
def pi0():
    from lerobot.policies.pi0 import modeling_pi0 as m
    from lerobot.policies.pi0.configuration_pi0 import PI0Config
    paligemma_sizes(m)
    return m.PI0Policy(PI0Config(**FEATURES, dtype="float32", image_resolution=(IMAGE_SIZE, IMAGE_SIZE)))


@made
def pi05():
    from lerobot.policies.pi05 import modeling_pi05 as m
    from lerobot.policies.pi05.configuration_pi05 import PI05Config
    paligemma_sizes(m)
    return m.PI05Policy(PI05Config(**FEATURES, dtype="float32", image_resolution=(IMAGE_SIZE, IMAGE_SIZE)))


@made
def pi0_fast():
    from lerobot.policies.pi0_fast import modeling_pi0_fast as m
    from lerobot.policies.pi0_fast.configuration_pi0_fast import PI0FastConfig
    paligemma_sizes(m)

    class NoTokenizer:  # both are downloaded; what is tested begins behind them
        bos_token_id, vocab_size = 2, WORDS

        @classmethod
        def from_pretrained(cls, *args, **kwargs):
            return cls()
    m.AutoProcessor = m.AutoTokenizer = NoTokenizer
    m.require_package = lambda *args, **given: None  # scipy, for the tokenizer too
    return m.PI0FastPolicy(PI0FastConfig(**FEATURES, dtype="float32", image_resolution=(IMAGE_SIZE, IMAGE_SIZE)))


@made
def smolvla():
    from lerobot.policies.smolvla import modeling_smolvla as m, smolvlm_with_expert as e
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    config = transformers.SmolVLMConfig(
        text_config=dict(model_type="llama", hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=64, vocab_size=WORDS, rms_norm_eps=1e-5),
        vision_config=dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                           image_size=IMAGE_SIZE, patch_size=14), scale_factor=2, image_token_id=299)

    class Given:  # what would be downloaded
        tokenizer = types.SimpleNamespace(fake_image_token_id=1, global_image_token_id=2)

        @staticmethod
        def from_pretrained(*args, **kwargs):
            return config
    e.AutoConfig = Given
    e.AutoProcessor = types.SimpleNamespace(from_pretrained=lambda *a, **k: Given)
    return m.SmolVLAPolicy(SmolVLAConfig(**FEATURES, load_vlm_weights=False, num_vlm_layers=3,
                                         resize_imgs_with_padding=(IMAGE_SIZE, IMAGE_SIZE)))


def groot_backbone(directory):
    """The backbone of GR00T N1.7 with two of its three layers, and what a policy has around it."""
    from lerobot.policies.groot.groot_n1_7 import Qwen3Backbone
    transformers.Qwen3VLConfig(
        text_config=dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=2,
                         num_key_value_heads=1, head_dim=128, vocab_size=320, rope_parameters={
                             "rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20],
                             "mrope_interleaved": True}),
        vision_config=dict(depth=2, hidden_size=64, intermediate_size=64, num_heads=2, out_hidden_size=256,
                           deepstack_visual_indexes=[0], num_position_embeddings=64),
        image_token_id=319, video_token_id=318, vision_start_token_id=317, vision_end_token_id=316,
    ).save_pretrained(directory)
    torch.manual_seed(1)
    backbone = shaken(Qwen3Backbone(model_name=directory, select_layer=2, load_pretrained_weights=False,
                                    transformers_loading_kwargs={}).float())
    return types.SimpleNamespace(_groot_model=types.SimpleNamespace(backbone=backbone), eval=backbone.eval,
                                 predict_action_chunk=backbone)


def observations(n=3, n_text=12, fast=False):
    """Observations as a policy gets them behind its preprocessor: language tokens padded, one camera missing in the last."""
    g = torch.Generator().manual_seed(5)
    for i in range(n):
        used = n_text - 3 * i
        tokens = torch.randint(3, WORDS - 3, (1, n_text), generator=g)
        mask = torch.arange(n_text)[None] < used
        batch = {"observation.state": torch.randn(1, STATE_DIM, generator=g),
                 "observation.images.top": torch.rand(1, 3, IMAGE_SIZE, IMAGE_SIZE, generator=g),
                 "observation.images.hand": torch.rand(1, 3, IMAGE_SIZE, IMAGE_SIZE, generator=g),
                 "observation.language.tokens": tokens, "observation.language.attention_mask": mask}
        if i == n - 1 and n > 2:
            del batch["observation.images.hand"]
        if fast:
            batch |= {"action.tokens": torch.randint(3, WORDS - 3, (1, 10), generator=g),
                      "action.token_mask": torch.ones(1, 10, dtype=torch.bool)}
        yield batch
