"""Stands in for TensorRT, which needs a GPU: the part of its API that our code calls. That the real ones have it is checked by
types, in test_published_bindings.py.

A graph is a JSON text that says how its build goes, or a real ONNX file, whose build goes well; a plan is the JSON of what was
asked for, as long as the weights.
"""

from __future__ import annotations

import enum
import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__version__ = "10.3.0"


_ONNX = b"\x08"  # how a protobuf whose first field is a number begins


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT64 = 2
    INT4 = 3
    BOOL = 4


class LayerType(enum.Enum):
    CONSTANT = 0
    MATRIX_MULTIPLY = 1


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class MemoryPoolType(enum.Enum):
    WORKSPACE = 0
    TACTIC_DRAM = 1


class ProfilingVerbosity(enum.Enum):
    LAYER_NAMES_ONLY = 0


class ILogger:
    class Severity(enum.IntEnum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2


class IProgressMonitor:
    pass


class Dims(list):  # type: ignore[type-arg]
    pass


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[Any]] = {}

    def set_shape(self, name: str, *shapes: Any) -> None:
        self.shapes[name] = list(shapes)


class TimingCache:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def serialize(self) -> bytes:
        return self.data


class Config:
    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self.profiles: list[dict[str, list[Any]]] = []
        self.cache: TimingCache | None = None
        self.profiling_verbosity: Any = None
        self.progress_monitor: Any = None

    def set_memory_pool_limit(self, pool: MemoryPoolType, nbytes: int) -> None:
        self.limits[pool.name] = nbytes

    def add_optimization_profile(self, profile: Profile) -> int:
        if os.environ.get("FAKE_TENSORRT") == "no profiles":
            return -1
        self.profiles.append(profile.shapes)
        return len(self.profiles) - 1

    def create_timing_cache(self, data: bytes) -> TimingCache | None:
        is_refused = data.startswith(b"torn") or os.environ.get("FAKE_TENSORRT") == "no timing cache"
        return None if is_refused else TimingCache(data)

    def set_timing_cache(self, cache: TimingCache | None, ignore_mismatch: bool) -> bool:
        if cache is None:  # the bindings take a reference
            raise TypeError("set_timing_cache(): incompatible function arguments")
        if cache.data.startswith(b"another") and not ignore_mismatch:
            return False
        self.cache = cache
        return True

    def get_timing_cache(self) -> TimingCache | None:
        return self.cache


class Network:
    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.name = ""
        self.script: dict[str, Any] = {}

    @property
    def num_inputs(self) -> int:
        return len(self.script["inputs"])

    @property
    def num_outputs(self) -> int:
        return len(self.script["outputs"])

    @property
    def num_layers(self) -> int:
        return 2

    def get_input(self, index: int) -> Any:
        return _tensor(self.script["inputs"][index])

    def get_output(self, index: int) -> Any:
        return _tensor(self.script["outputs"][index])

    def get_layer(self, index: int) -> Any:
        weights = _tensor(["weights", "INT4", [2, self.script["weights_bytes"]]])
        kind = LayerType.MATRIX_MULTIPLY if index else LayerType.CONSTANT
        return SimpleNamespace(type=kind, get_output=lambda _: weights)


def _tensor(words: list[Any]) -> Any:
    name, dtype, shape = words
    return SimpleNamespace(name=name, dtype=DataType[dtype], shape=Dims(shape))


class OnnxParser:
    def __init__(self, network: Network, logger: ILogger) -> None:
        self._network = network
        self._errors: list[dict[str, Any]] = []

    def parse_from_file(self, path: str) -> bool:
        data = Path(path).read_bytes()
        self._network.script = _script_of(path) if data.startswith(_ONNX) else json.loads(data)
        self._errors = self._network.script.get("errors", [])
        return not self._errors

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        error = self._errors[index]
        return SimpleNamespace(**{key: lambda value=value: value for key, value in error.items()})


def _script_of(path: str) -> dict[str, Any]:
    """Inputs and outputs of an ONNX file, as a script that builds it in one step."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    kinds = {onnx.TensorProto.INT64: "INT64", onnx.TensorProto.FLOAT16: "HALF", onnx.TensorProto.BOOL: "BOOL"}

    def words(value: Any) -> list[Any]:
        tensor = value.type.tensor_type
        return [value.name, kinds[tensor.elem_type], [dim.dim_value or -1 for dim in tensor.shape.dim]]

    nbytes = Path(path).with_name("weights.data").stat().st_size
    return {
        "inputs": [words(value) for value in graph.input],
        "outputs": [words(value) for value in graph.output],
        "weights_bytes": nbytes,
        "steps": 1,
        "seconds_a_step": 0,
        "end": "plan",
    }


class Builder:
    def __init__(self, logger: Any) -> None:
        self._logger = logger
        if os.environ.get("FAKE_TENSORRT") == "no memory on the GPU":
            logger.log(ILogger.Severity.ERROR, "CUDA initialization failure with error: 2")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def create_network(self, flags: int) -> Network:
        return Network(flags)

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
        script, monitor = network.script, config.progress_monitor
        monitor.phase_start("Building engine", "", script["steps"])
        if "began" in script:
            Path(script["began"]).write_text(str(os.getpid()), encoding="ascii")
        for step in range(script["steps"]):
            time.sleep(script["seconds_a_step"])
            if config.cache is not None:
                config.cache.data += b"+"
            if not monitor.step_complete("Building engine", step):
                return None
        monitor.phase_finish("Building engine")
        if script["end"].startswith("SIG"):
            os.kill(os.getpid(), signal.Signals[script["end"]])
        if script["end"] == "memory":
            raise MemoryError
        if script["end"] == "error":
            self._logger.log(ILogger.Severity.WARNING, "a warning")
            self._logger.log(ILogger.Severity.ERROR, "no kernel fits\n  this layer")
            self._logger.log(ILogger.Severity.WARNING, "another warning")
            return None
        asked = {
            "flags": network.flags,
            "name": network.name,
            "limits": config.limits,
            "profiles": config.profiles,
            "verbosity": config.profiling_verbosity.name,
            "inputs": script["inputs"],
            "outputs": script["outputs"],
        }
        return json.dumps(asked).encode().ljust(script["weights_bytes"])


class TensorIOMode(enum.Enum):
    INPUT = 0
    OUTPUT = 1


class Engine:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._inputs = {words[0]: words for words in plan["inputs"]}
        self._outputs = {words[0]: words for words in plan["outputs"]}
        self._profiles = plan["profiles"]
        self.num_io_tensors = len(self._inputs) + len(self._outputs)
        self.num_optimization_profiles = len(self._profiles)

    def get_tensor_name(self, index: int) -> str:
        return [*self._inputs, *self._outputs][index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self._inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[(self._inputs | self._outputs)[name][1]]

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims((self._inputs | self._outputs)[name][2])

    def get_tensor_profile_shape(self, name: str, index: int) -> list[Dims]:
        return [Dims(shape) for shape in self._profiles[index][name]]


class Runtime:
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, data: Any) -> Engine | None:
        text = bytes(data).rstrip(b"\0 ")
        if text == b"crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        try:
            return Engine(json.loads(text))
        except ValueError:
            self._logger.log(ILogger.Severity.ERROR, "magic tag does not match")
            return None
