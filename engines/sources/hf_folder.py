"""A Hugging Face folder (config.json, safetensors, tokenizer.json) as a Source. Owns: which of its tensors is which, what a
folder must hold. Needs: shards, an architecture. Never: what a tier makes of a tensor."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np

from edge.errors import SourceError
from edge.model_name import model_stem
from edge.spec import ModelSpec
from engines.sources.architectures import CONFIG_READERS, folder_places
from engines.sources.architectures.names import text_tensor_name
from engines.sources.architectures.places import Place
from engines.sources.base import SourceMetadata, SourceTensor, TokenizerFiles
from engines.sources.floats import FLOAT_TYPES, read_floats
from engines.sources.folder_json import CONFIG, flat_keys, read_object
from engines.sources.keys import Keys
from engines.sources.model_card import read_licence
from engines.sources.placed import PlacedSource, refuse_unknown
from engines.sources.shards import INDEX, SINGLE, Shards, open_shards
from engines.sources.tokenizer_files import GENERATION, TEMPLATE, TOKEN_MAP, TOKENIZER_CONFIG

TOKENIZER = "tokenizer.json"
TEXT_FILES = (TOKENIZER, TOKENIZER_CONFIG, TOKEN_MAP, GENERATION, TEMPLATE)
EMBEDDING, HEAD = "embed.weight", "head.weight"
# What older versions of transformers saved besides the weights: the rotary frequencies, which the configuration gives.
DERIVED = (".rotary_emb.inv_freq",)
SAVE_MODEL = "AutoModelForCausalLM as M; M.from_pretrained({0!r}).save_pretrained({0!r})"
SAVE_TOKENIZER = "AutoTokenizer as T; T.from_pretrained({0!r}).save_pretrained({0!r})"


class FolderSource(PlacedSource):
    """Tensors of a model folder by canonical name."""

    def __init__(self, shards: Shards, files: dict[str, str], spec: ModelSpec, metadata: SourceMetadata) -> None:
        """`files`: tensors of the text model by the name that architectures know -> by the name in the file."""
        self.spec = spec
        self.metadata = metadata
        self._shards = shards
        self._files = files
        super().__init__(folder_places(spec))
        for name, place in self._places.items():
            self._check_place(name, place)
        known = {place.file_name for place in folder_places(replace(spec, tied_head=False)).values()}
        refuse_unknown((name for name in files.keys() - known if not name.endswith(DERIVED)), spec, metadata.path)

    def read_rows(self, name: str, begin: int, end: int) -> SourceTensor:
        """Rows (or items of a vector) [begin, end), exactly: bfloat16 comes as float32."""
        place = self._places[name]
        assert 0 <= begin < end <= place.shape[0]
        file_name = self._files[place.file_name]
        entry = self._shards.tensors[file_name]
        stored = self._shards.raw(file_name).view(FLOAT_TYPES[entry.dtype]).reshape(entry.shape)
        where = f"{self._shards.path(file_name)}: tensor {file_name}"
        values = place.finish(read_floats(entry.dtype, stored, place.file_rows(begin, end), where), begin)
        assert isinstance(values, np.ndarray)
        return SourceTensor(name, values, entry.dtype, "", 0.0)

    def read_exact(self, name: str, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end) as float32."""
        return self.read_rows(name, begin, end).to_float32()

    def _check_place(self, name: str, place: Place) -> None:
        folder = self.metadata.path
        if place.file_name not in self._files:
            raise SourceError(f"{folder}: tensor {place.file_name} ({name}) is missing. Fetch the folder again")
        file_name = self._files[place.file_name]
        entry, where = self._shards.tensors[file_name], f"{self._shards.path(file_name)}: tensor {file_name} ({name})"
        if entry.shape != place.file_shape:
            fact = f"is {list(entry.shape)}, {CONFIG} makes it {list(place.file_shape)}"
            raise SourceError(f"{where} {fact}. Fetch the folder again")
        if entry.dtype not in FLOAT_TYPES:
            raise SourceError(f"{where} is {entry.dtype}, which is not read. Use a model in: {', '.join(FLOAT_TYPES)}")


def open_folder(path: Path, context: int | None) -> FolderSource:
    """Opens the model folder at `path`: configuration and headers are read and checked, no values but those of a second copy
    of the embedding. `context`: the longest text it is to serve, where an architecture computes by it; None: the model's."""
    _check_pieces(path)
    config = read_object(path / CONFIG)
    keys = flat_keys(path / CONFIG, config)
    _check_kind(keys, config)
    shards = open_shards(path)
    files = _text_tensors(path, shards)
    name = model_stem(path)
    spec = CONFIG_READERS[keys.text("model_type")](keys, name, context)
    try:
        spec.check()  # before places are planned by its numbers
    except ValueError as error:
        raise SourceError(f"{path / CONFIG}: {error}, which no model has. Fetch the folder again") from None
    spec = replace(spec, tied_head=_is_tied(keys, spec, shards, files))
    licence, link = read_licence(path)
    said = tuple(path / file for file in (CONFIG, *TEXT_FILES) if (path / file).is_file())
    metadata = SourceMetadata(path, name, licence, link, TokenizerFiles(path, spec.vocab_size), (*said, *shards.paths))
    return FolderSource(shards, files, spec, metadata)


def _text_tensors(path: Path, shards: Shards) -> dict[str, str]:
    """Tensors of the text model by the name that architectures know -> by the name in the file."""
    found: dict[str, str] = {}
    for name in shards.tensors:
        text = text_tensor_name(name)
        if text is not None and found.setdefault(text, name) != name:
            raise SourceError(f"{path}: tensors {found[text]} and {name} are both {text}. Save the model again")
    return found


def _check_pieces(path: Path) -> None:
    """SourceError for a folder that lacks a piece, with what is there instead and how to get the piece from it."""
    try:
        names = {each.name for each in path.iterdir()}
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror}). Check the path and its permissions") from error
    if not {CONFIG, SINGLE, INDEX} & names and any(name.endswith(".gguf") for name in names):
        file = min(name for name in names if name.endswith(".gguf"))
        raise SourceError(f"{path}: a folder with GGUF files. Give the file: {shlex.quote(str(path / file))}")
    if "adapter_config.json" in names and not {SINGLE, INDEX} & names:
        raise SourceError(f"{path}: holds an adapter, not a model. Merge it into its model first (peft: merge_and_unload)")
    if CONFIG not in names:
        raise SourceError(f"{path}: {CONFIG} is missing. Give a folder with {CONFIG}, {SINGLE} and {TOKENIZER}, or a GGUF file")
    if not {SINGLE, INDEX} & names:
        pickles = sorted(name for name in names if name.endswith((".bin", ".pt", ".pth")))
        if not pickles:
            raise SourceError(f"{path}: {SINGLE} is missing, and {INDEX} too. Fetch the weights into the folder")
        fact = f"{pickles[0]} is a pickle, which can run code and is not read; {SINGLE} is missing"
        raise SourceError(f"{path}: {fact}. {_saved_by(SAVE_MODEL, path)}")
    if TOKENIZER not in names:
        there = next((name for name in ("tokenizer.model", "vocab.json", "tekken.json") if name in names), None)
        step = "Fetch it into the folder" if there is None else f"Make it from {there}. {_saved_by(SAVE_TOKENIZER, path)}"
        raise SourceError(f"{path}: {TOKENIZER} is missing. {step}")


def _saved_by(command: str, path: Path) -> str:
    """The step that has transformers write what we read."""
    return f"Save it anew: python -c {shlex.quote('from transformers import ' + command.format(str(path)))}"


def _check_kind(keys: Keys, config: dict[str, object]) -> None:
    """SourceError for a kind of model that is not read."""
    quantised = config.get("quantization_config")
    if quantised is not None:
        method = quantised.get("quant_method", "unnamed") if isinstance(quantised, dict) else "unnamed"
        fact = f"the weights are quantised ({str(method)[:40]}), which is not read"
        raise keys.error("quantization_config", fact, f"Use the model's own weights ({', '.join(FLOAT_TYPES)}), or a GGUF file")
    kind = keys.text("model_type")
    if kind not in CONFIG_READERS:
        raise keys.error("model_type", f"is {kind[:60]!a}", f"Use a model of: {', '.join(CONFIG_READERS)}")


def _is_tied(keys: Keys, spec: ModelSpec, shards: Shards, files: dict[str, str]) -> bool:
    """Whether embedding and head are one: where a model ships both and they are equal they are, whatever it says."""
    places = folder_places(replace(spec, tied_head=False))
    embedding, head = files.get(places[EMBEDDING].file_name), files.get(places[HEAD].file_name)
    where = "tie_word_embeddings"
    if head is None:
        if not spec.tied_head:
            fact = f"is false, and tensor {places[HEAD].file_name} is missing"
            raise keys.error(where, fact, "Fetch the folder again, or set the key to true if the model was trained so")
        return True
    if embedding is not None and shards.equal(embedding, head):
        return True
    if spec.tied_head:
        fact = f"is true, but {head} differs from {places[EMBEDDING].file_name}"
        raise keys.error(where, fact, "Set it to false if both were trained, or leave the head out of the file")
    return False
