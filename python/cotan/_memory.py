"""Shows what uses the devices' memory: the live tensors, by the lines that made them."""
from typing import NamedTuple, Optional, Tuple

from . import _core


class MemoryRow(NamedTuple):
    """The tensors of one op, type and pair of lines."""
    nbytes: int
    count: int
    op: str  # its name, "variable", or "" if it is unknown
    name: str  # the name of one of them, or ""
    type: str  # "(64, 784) f32"
    line: Optional[Tuple[str, int]]  # the line that recorded them
    used_at: Optional[Tuple[str, int]]  # the line that needed their values

    def __str__(self):
        name, places = self.name and f' "{self.name}"', [f"{f}:{n}" for f, n in filter(None, (self.line, self.used_at))]
        place = ", wanted at ".join(dict.fromkeys(places))
        return f"{self.nbytes:12,} {self.count:7}  {self.op or 'not known'} {self.type}{name}" + (f" of {place}" if place else "")


class MemorySnapshot:
    """Rows, the largest first, and bytes of plans: their temporaries, constants and workspaces. The
    difference of two snapshots has the rows that grew, by how much."""

    def __init__(self, rows, arenas, constants, workspaces):
        self.rows = sorted(rows, key=lambda row: -row.nbytes)
        self.arenas, self.constants, self.workspaces = arenas, constants, workspaces

    @property
    def values(self):
        """Bytes of all rows."""
        return sum(row.nbytes for row in self.rows)

    def __sub__(self, before):
        if not isinstance(before, MemorySnapshot):
            return NotImplemented

        def key(row):
            return row.op, row.type, row.line, row.used_at
        had, rows = {key(row): row for row in before.rows}, []
        for row in self.rows:
            was = had.get(key(row))
            nbytes, count = (row.nbytes - was.nbytes, row.count - was.count) if was else (row.nbytes, row.count)
            if nbytes > 0 or count > 0:
                rows.append(row._replace(nbytes=max(nbytes, 0), count=max(count, 0)))
        return MemorySnapshot(rows, *(max(now - was, 0) for now, was in (
            (self.arenas, before.arenas), (self.constants, before.constants), (self.workspaces, before.workspaces))))

    def __str__(self):
        head = f"{'bytes':>12} {'tensors':>7}  what, and the lines that recorded it and needed it"
        return "\n".join([head, *map(str, self.rows),
                          f"{self.values:12,} in tensors; temporaries {self.arenas:,}, constants {self.constants:,}, "
                          f"workspaces {self.workspaces:,}"])


def memory_snapshot():
    """Returns the tensors of the process that use memory of a device now, by the lines that made them. Values
    that are only recorded use no memory yet."""
    rows, *plans = _core._memory_snapshot()
    return MemorySnapshot([MemoryRow(*row) for row in rows], *plans)
