"""Loads checkpoints with SGLang's own code, on a machine without a GPU: sglang_load.py WAYS CHECKPOINT...

Its config, its model class, its iterator over the files and its load_weights(); nothing is computed, so packages that hold
kernels are stubs.  One line of JSON for each checkpoint.
"""
import os
import sys

os.environ.update(SGLANG_USE_CPU_ENGINE="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402  (after the environment)

import loading  # noqa: E402
import stubs  # noqa: E402
from tracing import CACHE_SCALES  # noqa: E402

KERNELS = ("triton", "sgl_kernel", "tvm_ffi", "cutlass")
UNUSED = ("xgrammar", "IPython", "sentencepiece", "uvicorn")


class Operators:
    """torch.ops.sgl_kernel: operators for CPUs are looked up while modules are imported; one of them sets up threads."""

    def __getattr__(self, name):
        if not name.endswith(("_cpu", "_cpu_threads_env", "initialize")) and "packed" not in name:
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def prepare():
    stubs.install(*KERNELS, *UNUSED)
    torch.compile = lambda function=None, **options: function or (lambda f: f)
    torch.ops.__dict__["sgl_kernel"] = Operators()

    # Its part for compressed-tensors asks CUDA for its capability even on a CPU: Hopper's.
    torch.cuda.get_device_capability = lambda *args, **kwargs: (9, 0)

    from sglang.srt.model_loader import loader  # noqa: F401  (imports once, before the forks)
    from sglang.srt.models.registry import ModelRegistry  # noqa: F401


def start(path, ways, rank, port):
    """The state that a worker process of the engine sets up; returns its model config."""
    os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(["0"] * ways)     # one processor will do for all ranks
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import bootstrap
    from sglang.srt.layers.moe import initialize_moe_config
    from sglang.srt.layers.quantization.fp8_utils import initialize_fp8_gemm_config
    from sglang.srt.layers.quantization.unquant import initialize_bf16_gemm_config
    from sglang.srt.runtime_context import SpawnRanks, publish, spawn_world_rank
    from sglang.srt.server_args import ServerArgs
    arguments = ServerArgs(model_path=path, device="cpu", skip_tokenizer_init=True, tp_size=ways,
                           disable_overlap_schedule=True, attention_backend="triton", mem_fraction_static=0.1)
    world = spawn_world_rank(arguments, tp_rank=rank, pp_rank=0)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=world, gpu_id=rank))
    for step in (initialize_moe_config, initialize_fp8_gemm_config, initialize_bf16_gemm_config):
        step()
    config = ModelConfig.from_server_args(arguments)
    bootstrap.init_parallel_runtime(server_args=arguments, device="cpu", dist_port=port)
    bootstrap.init_layer_runtime(model_config=config)
    return config


def load(path, ways, rank, port):
    config = start(path, ways, rank, port)
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader import loader as own
    from sglang.srt.model_loader.utils import set_default_torch_dtype
    how = LoadConfig(load_format="auto")
    loader = own.DefaultModelLoader(how)
    with set_default_torch_dtype(config.dtype):
        with torch.device("cpu"):
            model = own._initialize_model(config, how, own._get_quantization_config(config, how))
        said = getattr(config.hf_config, "quantization_config", None) or {}
        left = () if any(value for key, value in said.items() if "kv_cache" in key) else CACHE_SCALES
        parameters = {n: p.data for n, p in model.named_parameters() if n.rpartition(".")[2] not in left}
        loading.poison(parameters)
        loader.load_weights_only(model, loader._get_all_weights(config, model), torch.device("cpu"))
    return model, parameters, config.quantization


def is_fp8(module):
    method = getattr(module, "quant_method", None)
    return None if method is None else "Unquantized" not in type(method).__name__


if __name__ == "__main__":
    prepare()
    import sglang
    loading.main(sys.argv[1:], sglang.__version__, load, is_fp8)
