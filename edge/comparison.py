"""How close two runs over the same text are. Owns: KL, top-1 and perplexity, summed over rows. Needs: numpy. Never: engines.

Rows of logits are compared as distributions: KL(reference || tested) = sum p (log p - log q), Kullback and Leibler (1951);
perplexity = exp(mean negative log-likelihood of the next token). Sums over rows are float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BEST = 64  # logits of a row that a stored reference keeps


def log_sum_exp(rows: np.ndarray) -> np.ndarray:
    """Float64 [n] of float32 [n, vocabulary]."""
    out = np.empty(len(rows))
    for i, row in enumerate(rows):  # row by row: a row fits the cache, a block of a large vocabulary does not
        top = row.max()
        out[i] = float(top) + np.log(np.exp(row - top).sum(dtype=np.float64))
    return out


@dataclass(slots=True)
class Comparison:
    """Sums over the rows that were added; the reference comes first everywhere."""

    rows: int = 0
    kl_sum: float = 0.0
    kl_max: float = 0.0
    same_top: int = 0
    scored: int = 0  # rows with a known next token
    reference_loss: float = 0.0
    tested_loss: float = 0.0

    def add(self, reference: np.ndarray, tested: np.ndarray, next_ids: np.ndarray) -> None:
        """Rows float32 [n, vocabulary] of both; `next_ids` [m <= n] are the tokens that follow the first m rows."""
        reference_norm, tested_norm = log_sum_exp(reference), log_sum_exp(tested)
        for row, (p_logits, q_logits) in enumerate(zip(reference, tested, strict=True)):
            # sum p (p_logits - q_logits) - (norm_p - norm_q): two float32 passes over the vocabulary and no float64 copy.
            p = np.exp(p_logits - np.float32(reference_norm[row]))
            shift = float(np.dot(p, p_logits - q_logits)) / float(p.sum(dtype=np.float64))
            self._add_kl(shift - float(reference_norm[row] - tested_norm[row]))
        self.same_top += int((reference.argmax(axis=1) == tested.argmax(axis=1)).sum())
        known = np.arange(len(next_ids))
        self.scored += len(next_ids)
        self.reference_loss += float((reference_norm[known] - reference[known, next_ids]).sum())
        self.tested_loss += float((tested_norm[known] - tested[known, next_ids]).sum())

    def add_stored(self, best_ids: np.ndarray, best: np.ndarray, norm: np.ndarray, tested: np.ndarray) -> None:
        """A stored reference: the best logits of each row [n, BEST], their ids, and the log-sum-exp [n].

        What is not stored counts as one outcome, so the KL is a lower bound of the full one (data processing inequality).
        """
        tested_norm = log_sum_exp(tested)
        for row in range(len(tested)):
            p_log = best[row].astype(np.float64) - float(norm[row])
            q_log = tested[row, best_ids[row]].astype(np.float64) - tested_norm[row]
            p_rest = max(1.0 - float(np.exp(p_log).sum()), 1e-12)
            q_rest = max(1.0 - float(np.exp(q_log).sum()), 1e-12)
            rest = p_rest * float(np.log(p_rest / q_rest))
            self._add_kl(float(np.dot(np.exp(p_log), p_log - q_log)) + rest)
        self.same_top += int((best_ids[:, 0] == tested.argmax(axis=1)).sum())

    def _add_kl(self, value: float) -> None:
        self.rows += 1
        self.kl_sum += value
        self.kl_max = max(self.kl_max, value)

    @property
    def kl_mean(self) -> float:
        """Nats a row."""
        return self.kl_sum / self.rows

    @property
    def top1(self) -> float:
        """Share of rows with the same best token."""
        return self.same_top / self.rows

    @property
    def reference_perplexity(self) -> float:
        return float(np.exp(self.reference_loss / self.scored))

    @property
    def tested_perplexity(self) -> float:
        return float(np.exp(self.tested_loss / self.scored))

    @property
    def perplexity_ratio(self) -> float:
        """Tested over reference."""
        with np.errstate(over="ignore"):  # infinity says it, and is judged
            return float(np.exp((self.tested_loss - self.reference_loss) / self.scored))


def best_logits(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a stored reference keeps of rows [n, vocabulary]: ids int32 and logits float32 [n, BEST], best first, and
    the log-sum-exp float32 [n]."""
    count = min(BEST, rows.shape[1])
    ids = np.argpartition(-rows, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(rows, ids, axis=1), axis=1, kind="stable")
    ids = np.take_along_axis(ids, order, axis=1)
    return ids.astype(np.int32), np.take_along_axis(rows, ids, axis=1), log_sum_exp(rows).astype(np.float32)
