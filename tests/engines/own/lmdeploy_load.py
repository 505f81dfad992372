"""Loads checkpoints with the code of lmdeploy's PyTorch engine, without a GPU: lmdeploy_load.py WAYS CHECKPOINT...

Its config, its model class and its loader; nothing is computed, so packages that hold kernels are stubs.  One line of JSON
for each checkpoint.
"""
import os
import sys
import types

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402  (after the environment)

import loading  # noqa: E402
import stubs  # noqa: E402

KERNELS = ("triton", "tilelang", "fla")
DERIVED = ("kc", "vc")      # made of kv_b_proj after loading
UNUSED = ("xgrammar", "ray", "peft")


def prepare():
    stubs.install(*KERNELS, *UNUSED)
    torch.compile = lambda function=None, **options: function or (lambda f: f)

    # Its modules are those for CUDA, which ask what the GPU can do: Hopper.
    torch.cuda.get_device_capability = lambda *args, **kwargs: (9, 0)
    torch.cuda.get_device_properties = lambda *args, **kwargs: types.SimpleNamespace(
        major=9, minor=0, multi_processor_count=132, name="H100", total_memory=80 << 30, warp_size=32,
        shared_memory_per_block_optin=232448)
    torch.cuda.get_device_name = lambda *args, **kwargs: "H100"
    torch.cuda.is_bf16_supported = lambda *args, **kwargs: True
    torch.cuda.current_device = lambda: 0

    from lmdeploy.pytorch.models.patch import build_patched_model  # noqa: F401  (imports once, before the forks)
    from lmdeploy.pytorch.weight_loader.model_weight_loader import ModelWeightLoader  # noqa: F401


def load(path, ways, rank, port):
    from lmdeploy.pytorch.config import DistConfig, ModelConfig
    from lmdeploy.pytorch.distributed import DistContext, get_dist_manager
    from lmdeploy.pytorch.models.patch import BuildModelContext, build_patched_model
    from lmdeploy.pytorch.weight_loader.model_weight_loader import ModelWeightLoader
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ways)
    how = DistConfig(tp=ways)
    config = ModelConfig.from_pretrained(path, trust_remote_code=False, dist_config=how, dtype="auto")
    with get_dist_manager().context(DistContext.build(rank, how, "gloo")), torch.inference_mode():
        context = BuildModelContext(quant_config=config.quant_config)
        model = build_patched_model(config, device=torch.device("cpu"), build_model_ctx=context)
        parameters = {n: p.data for n, p in model.named_parameters() if n.split(".")[-2] not in DERIVED}
        loading.poison(parameters)
        ModelWeightLoader(path).load_model_weights(model, device=torch.device("cpu"))
    return model, parameters, config.quant_config.quant_method if config.quant_config else None


def is_fp8(module):
    kind = type(module).__name__
    return "F8" in kind if any(word in kind for word in ("Linear", "Weights")) else None


if __name__ == "__main__":
    prepare()
    import lmdeploy
    loading.main(sys.argv[1:], lmdeploy.__version__, load, is_fp8)
