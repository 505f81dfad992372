"""Loads checkpoints with vLLM's own code, on a machine without a GPU: vllm_load.py WAYS CHECKPOINT...

Its config, its model class, its iterator over the files and its load_weights(); nothing is computed, so kernels need not
exist.  One line of JSON for each checkpoint.
"""
import os
import sys

os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1",
                  VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_CACHE_ROOT=os.path.join(sys.prefix, "cache"))

import torch  # noqa: E402  (after the environment)

import loading  # noqa: E402
from tracing import CACHE_SCALES  # noqa: E402

CACHE = {"q_scale", "prob_scale", "k_zero_point", "v_zero_point", "q_zero_point"}      # no checkpoint has these


def prepare():
    """Kernels are chosen while a layer is built: those for blocks say that this machine has what they need."""
    from vllm.model_executor.kernels.linear.scaled_mm import cpu
    for name in dir(cpu):
        kernel = getattr(cpu, name)
        if isinstance(kernel, type) and hasattr(kernel, "is_supported"):
            kernel.is_supported = classmethod(lambda cls, compute_capability=None: (True, None))

    # MXFP8 has none for CPUs at all; the one that emulates it takes its place.
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.kernels.linear.mxfp8 import emulation
    from vllm.platforms import current_platform
    kernel = next(v for n, v in vars(emulation).items() if n.startswith("Emulation") and isinstance(v, type))
    linear._POSSIBLE_MXFP8_KERNELS.setdefault(current_platform._enum, []).append(kernel)

    # A process for each class to be looked at would import everything anew.
    from vllm.model_executor.models import registry
    registry._run_in_subprocess = lambda look: look()
    from vllm.engine.arg_utils import EngineArgs  # noqa: F401  (imports once, before the forks)
    from vllm.model_executor.model_loader import get_model_loader  # noqa: F401


def load(path, ways, rank, port):
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.utils.torch_utils import set_default_torch_dtype
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ways))
    config = EngineArgs(model=path, skip_tokenizer_init=True, enforce_eager=True, max_model_len=128, dtype="bfloat16",
                        tensor_parallel_size=ways, distributed_executor_backend="mp" if ways > 1 else None,
                        ).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(ways, rank, f"tcp://127.0.0.1:{port}", rank, backend="gloo")
        ensure_model_parallel_initialized(ways, 1)
        loader = get_model_loader(config.load_config)
        with set_default_torch_dtype(torch.bfloat16), torch.device("cpu"):
            model = loader.create_model(config, config.model_config)
        quantization = config.model_config.hf_config.quantization_config or {}
        has_cache = any(value for key, value in quantization.items() if "kv_cache" in key)
        left = CACHE if has_cache else CACHE | set(CACHE_SCALES)
        parameters = {n: p.data for n, p in model.named_parameters() if n.rpartition(".")[2] not in left}
        loading.poison(parameters)
        loader.load_weights(model, config.model_config)
    return model, parameters, config.model_config.quantization


def is_fp8(module):
    method = getattr(module, "quant_method", None)
    return None if method is None else "Unquantized" not in type(method).__name__


if __name__ == "__main__":
    prepare()
    import vllm
    loading.main(sys.argv[1:], vllm.__version__, load, is_fp8)
