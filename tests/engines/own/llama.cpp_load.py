"""Converts checkpoints with llama.cpp's own converter: llama.cpp_load.py 1 CHECKPOINT...

Each is converted as it is and again after `fp8q dequantize --dtype f32`: every tensor of the two GGUF files must be the same,
bit for bit.  One line of JSON for each checkpoint.
"""
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import traceback

HOME = pathlib.Path(sys.prefix) / "llama.cpp"
sys.path[:0] = [str(HOME), str(HOME / "gguf-py")]



def prepare():
    """Imports once, before the forks.  The checkpoints have no tokenizer, whose hash the converter would look up."""
    import transformers  # noqa: F401
    from conversion import base
    begin = base.ModelBase.__init__

    def without(kind):
        for each in kind.__subclasses__():
            if "set_vocab" in vars(each):
                each.set_vocab = lambda self: None
            without(each)

    def init(self, *args, **kwargs):
        without(base.ModelBase)
        begin(self, *args, **kwargs)

    base.ModelBase.__init__ = init


def convert(path, out):
    """The tensors of the GGUF file that the converter makes: {name: (type, shape, bytes)}."""
    import gguf
    said = out.with_suffix(".error")
    child = os.fork()
    if child == 0:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(2, 1)
        sys.argv = [str(HOME / "convert_hf_to_gguf.py"), str(path), "--outtype", "f32", "--outfile", str(out)]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError((said.read_text().strip().splitlines() or ["it died"])[-1][:300])
    return {t.name: (t.tensor_type, tuple(t.shape), t.data.tobytes()) for t in gguf.GGUFReader(out).tensors}


def examine(path, scratch):
    answer = {"path": path, "loaded": False, "faults": [], "error": None, "fp8": 1}
    plain = scratch / "plain"
    subprocess.run([os.environ.get("FP8Q", "fp8q"), "dequantize", "-q", "--dtype", "f32", path, plain], check=True,
                   capture_output=True)
    try:
        wanted = convert(plain, scratch / "plain.gguf")
    except RuntimeError as e:
        # No word on FP8: the converter does not know this network, as plain floats either.
        answer["skipped"] = str(e)
        return answer
    try:
        got = convert(path, scratch / "fp8.gguf")
    except RuntimeError as e:
        answer["error"] = str(e)
        return answer
    answer["faults"] = [f"{n}: differs" for n in sorted(set(got) | set(wanted)) if got.get(n) != wanted.get(n)]
    answer["loaded"] = True
    return answer


def main(paths):
    prepare()
    print(json.dumps({"version": (HOME / "version").read_text().strip()}), flush=True)
    for path in paths:
        with tempfile.TemporaryDirectory() as scratch:
            print(json.dumps(examine(path, pathlib.Path(scratch))), flush=True)


if __name__ == "__main__":
    main(sys.argv[2:])
