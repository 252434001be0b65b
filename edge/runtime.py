"""The loop: plan a step, reserve pages, run, sample, commit. Owns: requests and sessions. Needs: pages, scheduler, an executor.
Never: text, bytes of pages, HTTP.

One engine, many sequences. One thread uses a Runtime at a time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType

import numpy as np

from edge.baked.mapped import MappedPrefixes
from edge.config import InferenceConfig
from edge.errors import EdgeError, ExecutorError, PackageError, RequestError
from edge.events import Events
from edge.executors.base import Executor, StepOutput
from edge.interrupts import deferred_interrupts
from edge.kv_budget import KvChoice, kv_groups
from edge.load import check_fits, check_prompt
from edge.manifest import Limits
from edge.pace import Pace
from edge.pages.account import add_by_zone
from edge.pages.fit import PoolSize, bytes_needed, peak_sizes
from edge.pages.geometry import own_tokens, pages_for, table_bytes
from edge.pages.policy import kept_pages, read_zones, seal_levels
from edge.pages.pool import Pool
from edge.pages.prefix_cache import PrefixCache, cut_border
from edge.pages.read_budget import ReadAll, Reading, parse_read_budget
from edge.pages.sequence import SequencePages
from edge.policies import BY_ATTENTION, PolicyName
from edge.presets import PRESETS, PresetName
from edge.queues import Queues
from edge.request import FinishReason, Request, SequenceTokens, TokenEvent
from edge.sampling import SamplingParams, logprob, sample
from edge.scheduler.state import StepLimits, StepPlan
from edge.session import Session
from edge.spec import ModelSpec
from edge.stats import PoolWatch, RuntimeStats, StepCounts
from edge.steady import Steady, find_steady
from edge.step_choice import Failed, StepChoice
from edge.step_run import StepRunner
from edge.watch import PromptWatch

_log = logging.getLogger(__name__)


class Runtime:
    """Runs requests on one engine inside a pool of fixed size."""

    def __init__(
        self,
        spec: ModelSpec,
        executor: Executor,
        pool_size: PoolSize,
        limits: Limits,
        config: InferenceConfig,
        preset: PresetName = "exact",
        policy: PolicyName = "uniform",
        lowest: PresetName = "exact",
        mapped: MappedPrefixes | None = None,
    ) -> None:
        """`limits` are those of this runtime, at most the engine's; the executor has `pool_size.pool_bytes` of pages, and
        behind them the prefixes of `mapped`. In a full pool pages are demoted down to those of `lowest`, where these have fewer
        bits than the preset's."""
        self.spec = spec
        self.executor = executor
        self.pool_size = pool_size
        self.limits = limits
        self.preset = preset
        self.policy = policy
        self._groups = kv_groups(spec, KvChoice(preset, policy=policy, lowest=lowest))
        chunk = min(config.chunk_tokens, limits.max_step_tokens)
        self._mapped = mapped or MappedPrefixes()
        most = own_tokens(limits.max_context, self._mapped.least_tokens)
        needed = bytes_needed(self._groups, pool_size, most, limits.max_sequences, chunk)
        # A pool that holds all that may be asked of it needs no slab to spare.
        self._may_demote = needed > pool_size.pool_bytes and any(group.demotes for group in self._groups)
        # Where pages are demoted, the new form finds place in the ends of slabs, and copies empty slabs for other sizes.
        # Pages whose level is chosen by attention are not those of another prompt that begins alike.
        publishes = config.prefix_cache and policy not in BY_ATTENTION
        self._pool = Pool(pool_size, fills_ends=self._may_demote or not publishes)
        self.prefix_cache = PrefixCache(self._pool, publishes)
        self._mapped.pin(spec, self._pool, self.prefix_cache)
        self._step_limits = StepLimits(limits.max_step_tokens, limits.max_sequences, chunk)
        self._queues = Queues(self._step_limits, self._groups)
        self._steady: Steady | None = None  # the next step, where it is like the last
        self._events: list[TokenEvent] = []  # since the last step
        self._inboxes: dict[int, deque[TokenEvent]] = {}  # by request, of those that `events` serves
        self._numbers = 0
        watch = PoolWatch(pool_size.pool_bytes, needed, config.pool_warn_share)
        self._counts = StepCounts()
        # Fp16 pages have no bounds to choose by: where the configuration has a budget for sealed ones, all are read.
        self._read_budget = parse_read_budget(config.read_budget) if PRESETS[preset].seals else ReadAll()
        self._replays = config.deterministic
        cache, counts = self.prefix_cache, self._counts
        self._choice = StepChoice(
            self._queues, self._pool, self._groups, self._step_limits, cache, counts, executor, self._may_demote
        )
        self._runner = StepRunner(executor, self._pool, self._groups, self.prefix_cache, self._counts, watch)

    # --- requests ------------------------------------------------------------------------------------------------

    def submit(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        cuts: Sequence[int] = (),
        zones: bytes = b"",
    ) -> Request:
        """Queues a request. RequestError for a prompt that is empty or over the context, BudgetError for one that the pool
        could never hold. `cuts` are positions at which a prompt may part from others that begin alike: ends of turns. `zones`
        are those of its pages of 32 tokens, a byte each (anchors.zones); pages beyond are background."""
        return self.submit_to(self._new_sequence(is_kept=False), prompt_ids, sampling, max_tokens, stop_ids, cuts, zones)

    def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        cuts: Sequence[int] = (),
        zones: bytes = b"",
    ) -> Events:
        """Events of one request until it ends; leaving the loop early cancels it. Other requests go on meanwhile."""
        with deferred_interrupts():  # in between nobody could cancel the request; behind, dropping its events does
            return self.events(self.submit(prompt_ids, sampling, max_tokens, stop_ids, cuts, zones))

    def session(self) -> Session:
        """A conversation whose pages stay between its requests."""
        return Session(self, self._new_sequence(is_kept=True))

    def submit_to(
        self,
        sequence: SequenceTokens,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        stop_ids: frozenset[int],
        cuts: Sequence[int],
        zones: bytes,
    ) -> Request:
        """`submit` on a sequence that may hold pages: of these, what was computed for the same tokens is used again."""
        tokens = [int(token) for token in prompt_ids]
        check_prompt(self.spec, tokens, max_tokens, self.limits.max_context)
        # The last token of an answer is never computed, so it needs no place.
        longest = min(len(tokens) + max_tokens - 1, self.limits.max_context)
        self._mapped.check_unchanged()
        page_zones, shared = read_zones(zones), self._mapped.shared_tokens(tokens)
        own = own_tokens(longest, shared)
        kept = kept_pages(page_zones) if self._may_demote else None
        check_fits(self._groups, self.pool_size, longest, self._step_limits.chunk_tokens, kept, shared)
        if any(request.sequence is sequence for request in self._queues.active()):
            raise RequestError("this session has a request that has not ended. Wait for it, cancel it, or open another session")
        number = self._new_number()
        try:
            with deferred_interrupts():
                levels = seal_levels(self.policy, page_zones, self._groups[0].base, len(tokens))
                levels[: pages_for(shared)] = self._groups[0].base  # as a file has them
                sequence.pages.assign(page_zones, levels)
                # Which pages are raised depends on whether those of earlier turns still stand, and that on who else runs.
                if self._replays and self.policy in BY_ATTENTION:
                    sequence.give_up(self.prefix_cache)
                sequence.restart(tokens, self.prefix_cache)
                request = Request(
                    id=number,
                    sequence=sequence,
                    prompt_tokens=len(tokens),
                    reused_tokens=sequence.pages.length,
                    sampling=sampling.with_drawn_seed(),
                    max_tokens=max_tokens,
                    stop_ids=stop_ids,
                    cuts=tuple(sorted({cut_border(cut) for cut in cuts if 0 < cut <= len(tokens)} - {0})),
                    pace=Pace(time.perf_counter()),
                    watch=PromptWatch.of(self.policy, self._groups, len(tokens), pages_for(self.limits.max_context)),
                    peak=peak_sizes(self._groups, own, self._step_limits.chunk_tokens),
                    reading=Reading(self._read_budget),
                )
                self._queues.add(request)
                self._steady = None
            return request
        except BaseException:  # Ctrl-C that waited for the block to end: the caller gets no request to cancel
            self.cancel(number)
            raise

    def events(self, request: Request) -> Events:
        """Events of a request that was submitted just now, as `generate` gives them; an error of the engine is raised."""
        return Events(request, self._inboxes.setdefault(request.id, deque()), self.step, self._leave)

    def cancel(self, request_id: int) -> None:
        """Ends a request, waiting or running, and frees its pages; the next step reports it. Nothing for one that has ended."""
        with deferred_interrupts():
            for request in self._queues.active():
                if request.id == request_id:
                    self._report(self._end(request, "cancelled"))

    def forget(self, sequence: SequenceTokens) -> None:
        """Frees the pages of a session's sequence and cancels its request."""
        with deferred_interrupts():
            sequence.is_kept = False
            for request in self._queues.active():
                if request.sequence is sequence:
                    self.cancel(request.id)
            self._queues.forget(sequence)

    def close(self) -> None:
        """Cancels everything and gives the memory of the engine back."""
        for sequence in [*(request.sequence for request in self._queues.active()), *self._queues.idle_sequences()]:
            self.forget(sequence)
        self.prefix_cache.clear()
        self.executor.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def isa(self) -> str:
        """Name of the instruction set that runs."""
        return self.executor.isa

    @property
    def has_work(self) -> bool:
        """Whether a request runs or waits."""
        return bool(self._queues.active())

    @property
    def stats(self) -> RuntimeStats:
        tables = self.limits.max_sequences * table_bytes(self._groups, pages_for(self.limits.max_context))
        held = [*(request.sequence for request in self._queues.active()), *self._queues.idle_sequences()]
        by_zone = add_by_zone(sequence.pages.bytes_by_zone() for sequence in held)
        return self._counts.with_memory(self._pool.counts(), by_zone, tables, self.prefix_cache)

    def check(self) -> None:
        """Asserts that every extent in use belongs to a sequence or a cut that is known here, and that the pool agrees with
        itself."""
        self._pool.check(self._queues.extents(), self.prefix_cache.extents())

    # --- the loop ------------------------------------------------------------------------------------------------

    def step(self) -> list[TokenEvent]:
        """Runs one step of the engine. The events since the last call; none while prompts are computed, or without requests."""
        with deferred_interrupts():
            started = time.perf_counter()
            if (steady := self._steady) is not None:
                requests, asking = steady.requests, range(len(steady.requests))
                ran, seconds = self._runner.repeat(steady)
                if not steady.left:
                    self._steady = None
                self._sample_all(requests, asking, ran)
            elif isinstance(decision := self._choice.next_step(), StepPlan):
                seconds = self._run(decision)
                self._steady = find_steady(self._queues.running_alone())
            else:
                if isinstance(decision, Failed):
                    for request in decision.requests:
                        self._report(self._end(request, "error", decision.error))
                return self._take_events()
            self._counts.loop_seconds += time.perf_counter() - started - seconds
            return self._take_events()

    def _take_events(self) -> list[TokenEvent]:
        events, self._events = self._events, []
        return events

    def _run(self, step_plan: StepPlan) -> float:
        """Seconds in the executor."""
        self._queues.admit(len(step_plan.admitted))
        requests = [self._queues.running(chunk.request) for chunk in step_plan.chunks]
        ran, seconds = self._runner.run(step_plan, requests, publishes=not self._queues.is_alone)
        self._sample_all(requests, [b for b, chunk in enumerate(step_plan.chunks) if chunk.is_last], ran)
        return seconds

    def _sample_all(self, requests: Sequence[Request], asking: Sequence[int], output: StepOutput | ExecutorError) -> None:
        """The next token of `requests[b]` for each b of `asking`, whose rows `output` has; the end of those that failed: of all
        where the engine did, of one whose numbers are not finite alone."""
        if isinstance(output, ExecutorError):
            for request in requests:
                self._report(self._end(request, "error", output))
            return
        errors = output.errors()
        for b, reason in errors.items():
            self._report(self._end(requests[b], "error", reason))
        for b, row in zip(asking, output.logits, strict=True):
            if b not in errors:
                self._report(self._sample(requests[b], row))

    def _sample(self, request: Request, logits: np.ndarray) -> TokenEvent:
        """The next token of `request` from its row of logits, float32 [vocabulary]."""
        known = request.sequence.token_ids
        try:
            token = sample(logits, request.sampling, known, len(known))
        except ExecutorError as error:
            return self._end(request, "error", error)
        request.accept(token, time.perf_counter())
        reason: FinishReason | None = None
        if token in request.stop_ids:
            reason = "stop"
        elif len(request.token_ids) == request.max_tokens or len(known) > self.limits.max_context:
            reason = "length"
        if reason is not None and (ended := self._end(request, reason)).error is not None:
            return ended
        return TokenEvent(request.id, token, reason, logprob(logits, token) if request.sampling.logprobs else None)

    def _leave(self, request_id: int) -> None:
        """Nobody waits for the events of this request any more."""
        with deferred_interrupts():
            self._inboxes.pop(request_id, None)
            self.cancel(request_id)

    def _end(self, request: Request, reason: FinishReason, error: EdgeError | None = None) -> TokenEvent:
        sequence = request.sequence
        if reason in ("stop", "length"):
            try:
                self._mapped.check_read(sequence.token_ids)
            except PackageError as changed:
                reason, error = "error", changed
        request.finish_reason = reason
        self._counts.last_bytes_by_zone = request.kv_bytes = sequence.pages.bytes_by_zone()
        border = cut_border(sequence.pages.length)
        if reason in ("stop", "length") and not self._queues.is_alone and border and sequence.has_read_all(border):
            self.prefix_cache.publish(sequence.token_ids, sequence.pages.cut(border, sequence.pages.words()))
        self._steady = None
        # What an engine that failed has computed is worth nothing.
        self._queues.remove(request, keep_pages=sequence.is_kept and reason != "error")
        return TokenEvent(request.id, None, reason, error=error)

    def _report(self, event: TokenEvent) -> None:
        self._events.append(event)
        if event.request_id in self._inboxes:
            self._inboxes[event.request_id].append(event)

    def _new_sequence(self, is_kept: bool) -> SequenceTokens:
        pages = SequencePages(self._pool, self._groups, pages_for(self.limits.max_context))
        return SequenceTokens(self._new_number(), is_kept, pages, replays=self._replays)

    def _new_number(self) -> int:
        self._numbers += 1
        return self._numbers
