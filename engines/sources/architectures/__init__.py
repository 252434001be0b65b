"""Model architectures that can be read. Owns: the registries. Needs: one file an architecture. Never: file formats."""

from __future__ import annotations

from collections.abc import Callable

from edge.spec import ModelSpec
from engines.sources.architectures import gemma2, gemma3, llama, mistral, phi3, qwen, smollm3
from engines.sources.architectures.dimensions import GgufFile
from engines.sources.architectures.places import FileForm, Place, plan_places
from engines.sources.keys import Keys

# By general.architecture.
GGUF_READERS: dict[str, Callable[[GgufFile], ModelSpec]] = {
    "llama": llama.read_gguf,
    "qwen2": qwen.read_gguf,
    "qwen3": qwen.read_gguf,
    "phi3": phi3.read_gguf,
    "smollm3": smollm3.read_gguf,
    "gemma2": gemma2.read_gguf,
    "gemma3": gemma3.read_gguf,
}

# By model_type of a config.json: keys, the name to show, the context that the caller will use at most (None: the model's own).
CONFIG_READERS: dict[str, Callable[[Keys, str, int | None], ModelSpec]] = {
    "llama": llama.read_config,
    "mistral": mistral.read_config,
    "qwen2": qwen.read_qwen2_config,
    "qwen3": qwen.read_qwen3_config,
    "phi3": phi3.read_config,
    "smollm3": smollm3.read_config,
    "gemma2": gemma2.read_config,
    "gemma3_text": gemma3.read_config,
    "gemma3": gemma3.read_config,
}

_GGUF_FORMS: dict[str, FileForm] = {
    "llama": llama.GGUF_FORM,
    "qwen2": qwen.GGUF_FORM,
    "qwen3": qwen.GGUF_FORM,
    "phi3": phi3.GGUF_FORM,
    "smollm3": smollm3.GGUF_FORM,
    "gemma2": gemma2.GGUF_FORM,
    "gemma3": gemma3.GGUF_FORM,
}

_FOLDER_FORMS: dict[str, FileForm] = {
    "llama": llama.FOLDER_FORM,
    "mistral": mistral.FOLDER_FORM,
    "qwen2": qwen.FOLDER_FORM,
    "qwen3": qwen.FOLDER_FORM,
    "phi3": phi3.FOLDER_FORM,
    "smollm3": smollm3.FOLDER_FORM,
    "gemma2": gemma2.FOLDER_FORM,
    "gemma3": gemma3.FOLDER_FORM,
}


def gguf_places(spec: ModelSpec) -> dict[str, Place]:
    """Canonical tensor name -> place in a GGUF file, in model order."""
    return plan_places(spec, _GGUF_FORMS[spec.architecture])


def folder_places(spec: ModelSpec) -> dict[str, Place]:
    """Canonical tensor name -> place in the safetensors of a folder, in model order."""
    return plan_places(spec, _FOLDER_FORMS[spec.architecture])
