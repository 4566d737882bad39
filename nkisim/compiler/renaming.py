"""Tiles that the compiler renames: one that is written whole again is a new tile.

A kernel may make a buffer before a loop and fill it in each iteration. The compiler keeps apart
what the iterations hold, as if the kernel made the buffer in the loop: a public convolution of this
form takes as long on trn2 as the model gives for a buffer of each iteration's own (824 us measured,
817 modelled; 5243 with one buffer for all). So no instruction waits until the readers of the
contents before are done, as long as there is room.

Tiles that the kernel places by hand stay where they are.
"""

from __future__ import annotations

from nkisim.cost.storage import Operation, OperationForm, Storage


def rename(steps: list[Operation], storage: Storage) -> None:
    """Give tiles that are written whole again, without being read, numbers of their own from there
    on.

    Args:
        steps: in program order; what they touch is changed.
        storage: of what they touch.
    """
    renews = {form: _written_whole(form, storage) for form in storage.forms.values()}
    if not any(renews.values()):
        return
    touched: set[int] = set()
    now: dict[int, int] = {}  # number in the program -> the one it has here
    for step in steps:
        reads, writes = step.reads, step.writes
        read = [number for number, _ in reads]
        whole = [writes[k][0] for k in renews[step.form]]
        again = [n for n in whole if n in touched and n not in read]
        touched.update(read)
        touched.update([number for number, _ in writes])
        if now:
            step.reads = [(now.get(n, n), part) for n, part in reads]
        for number in again:
            now[number] = storage.another(number)
        if now:
            step.writes = [(now.get(n, n), part) for n, part in writes]


def _written_whole(form: OperationForm, storage: Storage) -> list[int]:
    """The outputs of an instruction that overwrite whole tiles, by position."""
    i = form.instr
    if i.where is not None or i.where_out is not None or i.spec.partial:
        return []
    if i.settings.accumulate:
        return []
    return [
        k
        for k, t in enumerate(i.outs)
        if t.space.on_chip and not t.buffer.placed and storage.whole_tile(t)
    ]
