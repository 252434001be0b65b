"""One measurement of another engine, in a process and a Python of its own: needs that engine, and nothing of edge.

Reads one job as JSON from standard input, prints one JSON line: the figures, or {"error": ...}, with
"is_missing" where the engine is not installed.

    {"engine": "llama.cpp", "model": PATH, "ids": [...], "decode": 64, "threads": 2, "scratch": FOLDER, "flash": false}

The prompt goes in by chunks, then the answer token by token, always the most likely one. Owns: each engine's own loop, with its
fastest settings. Needs: llama_cpp, openvino_genai or onnxruntime. Never: judges.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

CHUNK = 512  # prompt tokens that llama.cpp and ONNX Runtime get at once; llama.cpp's own default
WARM_UP_TOKENS = 8
_Q4_0 = 2  # LLAMA_FTYPE_MOSTLY_Q4_0: llama.cpp repacks it for the processor, which makes it its fastest 4-bit format


def run_llama_cpp(job: dict[str, Any]) -> dict[str, Any]:
    """llama.cpp through llama-cpp-python's low-level interface: the model as q4_0, keys and values as f16."""
    import llama_cpp
    import numpy as np

    path, threads = os.path.join(job["scratch"], "llama.cpp-q4_0.gguf"), job["threads"]
    if not os.path.exists(path):
        params = llama_cpp.llama_model_quantize_default_params()
        params.allow_requantize, params.ftype, params.nthread = True, _Q4_0, threads
        partial = path + ".partial"
        if llama_cpp.llama_model_quantize(os.fsencode(job["model"]), os.fsencode(partial), ctypes.byref(params)):
            raise RuntimeError(f"llama.cpp cannot rewrite {job['model']} as q4_0")
        os.replace(partial, path)
    start = time.perf_counter()
    model = llama_cpp.Llama(
        path, n_ctx=len(job["ids"]) + job["decode"] + CHUNK // 8, n_threads=threads, n_threads_batch=threads, n_batch=CHUNK,
        flash_attn=job["flash"], verbose=False,
    )  # fmt: skip
    load = time.perf_counter() - start
    context, vocabulary = model._ctx.ctx, model.n_vocab()

    def step(ids: list[int]) -> int:
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, len(ids))):
            raise RuntimeError("llama_decode failed")
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(vocabulary,)).argmax())

    step(job["ids"][:WARM_UP_TOKENS])
    model._ctx.kv_cache_clear()
    return dict(_timed(job, step), load_s=load, version=llama_cpp.__version__)


def run_openvino(job: dict[str, Any]) -> dict[str, Any]:
    """OpenVINO GenAI reads the GGUF itself, and times itself."""
    import numpy as np
    import openvino
    import openvino_genai

    start = time.perf_counter()
    pipe = openvino_genai.LLMPipeline(job["model"], "CPU", INFERENCE_NUM_THREADS=job["threads"])
    load = time.perf_counter() - start
    config = openvino_genai.GenerationConfig()
    config.ignore_eos, config.do_sample = True, False

    def answer(ids: list[int], tokens: int) -> Any:
        config.max_new_tokens = tokens
        return pipe.generate(openvino.Tensor(np.array([ids], dtype=np.int64)), config)

    answer(job["ids"][:WARM_UP_TOKENS], WARM_UP_TOKENS)
    metrics = answer(job["ids"], job["decode"] + 1).perf_metrics
    if metrics.get_num_input_tokens() != len(job["ids"]):
        raise RuntimeError(f"OpenVINO GenAI computed {metrics.get_num_input_tokens()} tokens")
    ttft, token = metrics.get_ttft().mean / 1e3, metrics.get_tpot().mean / 1e3
    return {"ttft_s": ttft, "decode_s": token * job["decode"], "load_s": load, "version": openvino_genai.__version__}


def run_onnxruntime(job: dict[str, Any]) -> dict[str, Any]:
    """ONNX Runtime on our portable ONNX: int4 products fused to MatMulNBits with int8 activations; keys and values stay in
    their memory, which is input and output of every run."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it would begin, and leave a file in TMPDIR, as it is imported
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "4")
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
    load = time.perf_counter() - start
    context = len(job["ids"]) + job["decode"]
    binding = session.io_binding()
    binding.bind_output("logits")  # the first of its outputs
    for value in session.get_inputs():
        if value.name.startswith("past_"):
            _, heads, _, width = value.shape
            cache = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, heads, context, width), np.float32))
            binding.bind_ortvalue_input(value.name, cache)
            binding.bind_ortvalue_output(value.name.replace("past_", "present_"), cache)
    columns, done = np.arange(context), [0]

    def step(ids: list[int]) -> int:
        rows = done[0] + np.arange(len(ids))
        binding.bind_cpu_input("input_ids", np.array([ids], np.int64))
        binding.bind_cpu_input("position_ids", rows[None].astype(np.int64))
        binding.bind_cpu_input("write_indices", np.array([done[0]], np.int64))
        binding.bind_cpu_input("attention_mask", (columns[None] <= rows[:, None])[None, None])
        session.run_with_iobinding(binding)
        done[0] += len(ids)
        return int(binding.get_outputs()[0].numpy()[0, -1].argmax())

    step(job["ids"][:WARM_UP_TOKENS])
    done[0] = 0
    return dict(_timed(job, step), load_s=load, version=onnxruntime.__version__)


def _timed(job: dict[str, Any], step: Callable[[list[int]], int]) -> dict[str, Any]:
    """`step` takes ids and gives the most likely next one: the prompt in chunks, then the answer one by one."""
    ids = job["ids"]
    start = time.perf_counter()
    for begin in range(0, len(ids), CHUNK):
        token = step(ids[begin : begin + CHUNK])
    first = time.perf_counter()
    for _ in range(job["decode"]):
        token = step([token])
    return {"ttft_s": first - start, "decode_s": time.perf_counter() - first}


def _peak_bytes() -> int | None:
    """VmHWM. Not ru_maxrss, which also knows the process that started this one."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM"].split()[0]) * 1024 if "VmHWM" in lines else None


ENGINES = {"llama.cpp": run_llama_cpp, "openvino-genai": run_openvino, "onnxruntime": run_onnxruntime}


def main() -> None:
    job = json.load(sys.stdin)
    try:
        figures = ENGINES[job["engine"]](job)
    except ImportError as error:
        figures = {"error": f"not installed in {sys.executable} ({error})", "is_missing": True}
    except Exception as error:  # whatever an engine raises is its row
        figures = {"error": f"{type(error).__name__}: {error}"}
    else:
        figures["prefill_tokens_per_s"] = len(job["ids"]) / figures["ttft_s"]
        figures["decode_tokens_per_s"] = job["decode"] / figures.pop("decode_s")
        figures["peak_rss_bytes"] = _peak_bytes()
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
