"""Bakes a prefix: runs its prompt once and keeps the pages. Owns: what goes into the header, the run. Needs: a runtime, write.
Never: terminals, the choice of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge import __version__
from edge.baked.folder import baked_path
from edge.baked.header import BORDER, FORMAT_VERSION, BakedCut, BakedHeader, pack_ints
from edge.baked.prefix import BakedPrefix, engine_of
from edge.baked.sections import SectionCut
from edge.baked.write import PrefixFile, partial_file
from edge.executors.native import NativeExecutor
from edge.pages.geometry import page_groups
from edge.presets import PRESETS, PresetName
from edge.sampling import SamplingParams
from edge.text.opening import Opening

if TYPE_CHECKING:
    from edge.package import Package
    from edge.progress import Progress
    from edge.runtime import Runtime
    from edge.session import Session

_NO_HASH = "0" * 64  # until the extents are written


@dataclass(frozen=True, slots=True)
class BakeRequest:
    name: str  # folder.check_name has seen it
    opening: Opening
    cuts: tuple[SectionCut, ...]  # ascending, the last is the end
    replaces: bool  # a prefix of that name


def bake_prefix(package: Package, runtime: Runtime, request: BakeRequest, progress: Progress) -> BakedPrefix:
    """Computes the pages of `request.cuts` in `runtime`, which nobody else uses, and writes them into the package. PackageError
    where that cannot be; nothing is left then, nor behind a Ctrl-C."""
    executor = runtime.executor
    assert isinstance(executor, NativeExecutor), "the only one whose pages a file can hold"
    header = _draft(package, runtime.preset, executor.isa, request)
    groups = page_groups(package.spec, PRESETS[runtime.preset])
    with partial_file(package.path, request.name, replaces=request.replaces) as file:
        target = PrefixFile(file, header, groups)
        session = runtime.session()
        progress.start("prefilling", request.cuts[-1].tokens, "tokens")
        for cut in request.cuts:
            _compute(runtime, session, request.opening.token_ids[: cut.tokens], progress)
            target.add(session.words, executor.pool)
        progress.done()
        target.finish()
    return BakedPrefix.open(baked_path(package.path, request.name))


def _compute(runtime: Runtime, session: Session, token_ids: Sequence[int], progress: Progress) -> None:
    """Pages of all of these tokens, step by step; those of the cut before stand."""
    done = session.computed_tokens
    events = session.generate(token_ids, SamplingParams(), 1)
    try:
        while runtime.has_work:
            for event in runtime.step():
                if event.error is not None:
                    raise event.error
            progress.advance(session.computed_tokens - done)
            done = session.computed_tokens
    finally:
        events.close()
    assert done == len(token_ids), "a prompt is computed to its end"


def _draft(package: Package, preset: PresetName, isa: str, request: BakeRequest) -> BakedHeader:
    """The header but for what is known when the extents are written."""
    assert request.cuts, "nothing to bake"
    opening = request.opening
    return BakedHeader(
        format_version=FORMAT_VERSION,
        name=request.name,
        created_by=f"edge-zero {__version__}",
        engine=engine_of(package.manifest, preset, isa),
        system=opening.system,
        document=opening.document,
        text=opening.text,
        token_ids=pack_ints(opening.token_ids),
        cuts=tuple(BakedCut(cut.tokens, cut.title, "") for cut in request.cuts),
        begin=BORDER,
        extent_bytes=BORDER,
        extents_sha256=_NO_HASH,
    )
