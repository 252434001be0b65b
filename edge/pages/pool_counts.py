"""A pool in numbers. Owns: PoolCounts. Needs: nothing. Never: changes anything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Bytes of the pool: used + free + slack is the whole."""

    pool_bytes: int
    used_bytes: int  # in extents that somebody holds
    free_bytes: int  # free slabs, and free extents in slabs in use
    slack_bytes: int  # ends of slabs that nothing has been put into
    cached_bytes: int  # of the used bytes, what only the prefix cache holds
    high_water_bytes: int  # the most that `held_bytes` has been
    bytes_by_format: dict[str, int]  # of the used bytes
    high_water_by_format: dict[str, int]  # of those when they were the most
    baked_bytes: int  # in extents of files, behind the pool

    @property
    def held_bytes(self) -> int:
        """Of the used bytes, what sequences hold."""
        return self.used_bytes - self.cached_bytes
