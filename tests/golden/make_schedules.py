"""Writes tests/golden/schedules: actions that PyTorch 2.11's pipeline schedules execute, for the tests of core/schedule.

    python tests/golden/make_schedules.py        (a Python with torch==2.11.0)

tables.txt    one line per schedule, number of ranks and number of microbatches: the FNV-1a hash of the compute rows that
              the loops of ScheduleGPipe and Schedule1F1B execute (the order that PyTorch prints for 1F1B is wrong on the
              last rank, so printed orders are not used), and the hash of the rows after PyTorch's lowering.
several.txt   one line per schedule with several stages per rank, number of ranks and of stages per rank: for 1 to 32
              microbatches the hash of the compute table that the constructor makes, or - if the constructor refuses.
NAME.csv      compute tables of the schedules with several stages per rank. NAME.lowered.csv: the same tables, lowered.
"""
import csv
import pathlib
import types

import torch
from torch.distributed.pipelining import schedules as s

FOLDER = pathlib.Path(__file__).parent / "schedules"


class RecordingStage:
    """A fake stage that records the calls of a schedule's loop in order."""

    def __init__(self, index, stages):
        self.stage_index, self.is_first, self.is_last = index, index == 0, index == stages - 1
        self.actions = []

    def forward_one_chunk(self, microbatch, *args, **kwargs):
        self.actions.append(s._Action(self.stage_index, s.FORWARD, microbatch))

    def backward_one_chunk(self, microbatch, **kwargs):
        self.actions.append(s._Action(self.stage_index, s.FULL_BACKWARD, microbatch))

    def no_transfers(self, microbatch):
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = no_transfers

    def perform_reduce_grad(self, scale):
        pass


def rows_that_run(kind, ranks, microbatches):
    """Runs the loop without the constructor, which refuses fewer microbatches than stages although the loop runs them."""
    rows = {}
    for rank in range(ranks):
        schedule = object.__new__(kind)
        schedule._n_microbatches, schedule._num_stages = microbatches, ranks
        schedule._stage = RecordingStage(rank, ranks)
        schedule._loss_fn, schedule._internal_losses, schedule.scale_grads = None, [], False
        schedule._check_inputs = lambda *args: ([()] * microbatches, [{}] * microbatches)
        schedule._initialize_stage = lambda *args: None
        schedule._maybe_compute_loss = schedule._maybe_get_loss = lambda *args: None
        schedule._step_microbatches()
        rows[rank] = schedule._stage.actions
    return rows


def lowered(rows, rank_of_stage, microbatches):
    with_stages = {rank: s._add_reduce_grad(s._add_unshard_reshard(row), microbatches) for rank, row in rows.items()}
    return s._add_send_recv(with_stages, lambda stage: rank_of_stage[stage], len(rank_of_stage))


def fnv(rows):
    text = "\n".join(" ".join(str(action) for action in rows[rank]) for rank in sorted(rows))
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def write_tables():
    with open(FOLDER / "tables.txt", "w") as out:
        for name, kind in (("gpipe", s.ScheduleGPipe), ("1f1b", s.Schedule1F1B)):
            for ranks in range(1, 17):
                for microbatches in range(1, 65):
                    rows = rows_that_run(kind, ranks, microbatches)
                    low = lowered(rows, list(range(ranks)), microbatches)
                    out.write(f"{name} {ranks} {microbatches} {fnv(rows)} {fnv(low)}\n")


SEVERAL = {"loopedbfs": s.ScheduleLoopedBFS, "interleaved1f1b": s.ScheduleInterleaved1F1B,
           "interleavedzerobubble": s.ScheduleInterleavedZeroBubble, "zbvzerobubble": s.ScheduleZBVZeroBubble,
           "dualpipev": s.ScheduleDualPipeV}


def constructed(kind, ranks, stages, microbatches):
    """Returns the compute rows that PyTorch's constructor makes, validates and lowers, or None if it refuses."""
    of_rank_0 = [types.SimpleNamespace(stage_index=index, num_stages=stages, group_size=ranks, group_rank=0,
                                       is_first=index == 0, is_last=index == stages - 1, submod=None)
                 for index in range(0, stages, ranks)]
    try:
        schedule = kind(of_rank_0, microbatches)
    except (ValueError, AssertionError):
        return None
    return {rank: [action for action in row if action is not None] for rank, row in schedule.pipeline_order.items()}


def write_several():
    with open(FOLDER / "several.txt", "w") as out:
        for name, kind in SEVERAL.items():
            for ranks in range(1, 9):
                for each in range(1, 5):
                    rows = [constructed(kind, ranks, ranks * each, microbatches) for microbatches in range(1, 33)]
                    out.write(" ".join([name, str(ranks), str(each)] + [fnv(row) if row else "-" for row in rows]) + "\n")


def write_csv(path, rows):
    with open(path, "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        for rank in sorted(rows):
            writer.writerow(rows[rank])


def write_multi(name, kind, ranks, microbatches):
    stages, v = 2 * ranks, kind in (s.ScheduleZBVZeroBubble, s.ScheduleDualPipeV)
    rank_of_stage = [i if i < ranks else stages - 1 - i for i in range(stages)] if v else [i % ranks for i in range(stages)]
    schedule = object.__new__(kind)
    schedule.pp_group_size, schedule.num_stages = ranks, stages
    schedule._num_stages, schedule._n_microbatches, schedule.n_local_stages = stages, microbatches, 2
    schedule.number_of_rounds = max(1, microbatches // ranks)
    schedule.microbatches_per_round = microbatches // schedule.number_of_rounds
    rows = {rank: schedule._calculate_single_rank_operations(rank) for rank in range(ranks)}
    if kind is s.ScheduleInterleavedZeroBubble:
        schedule.pipeline_order = rows
        rows = schedule._add_bubbles_to_actions(stages)
    write_csv(FOLDER / f"{name}.csv", rows)
    write_csv(FOLDER / f"{name}.lowered.csv", lowered(rows, rank_of_stage, microbatches))


if __name__ == "__main__":
    assert torch.__version__.startswith("2.11."), torch.__version__
    FOLDER.mkdir(exist_ok=True)
    write_tables()
    write_several()
    write_multi("interleaved", s.ScheduleInterleaved1F1B, 2, 4)
    write_multi("interleaved_zero_bubble", s.ScheduleInterleavedZeroBubble, 4, 8)
    write_multi("zbv", s.ScheduleZBVZeroBubble, 3, 7)
    write_multi("dual_pipe_v", s.ScheduleDualPipeV, 2, 5)
