"""A peer of bench/transport: the lines of bench/transport.cc, over the Gloo of torch.distributed; each rank answers for itself."""
import os
import sys
import time

import torch
import torch.distributed as dist

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MOST = (64 << 20) // 4
data, into = torch.zeros(MOST), torch.zeros(MOST)


def ping_pong(elements):
    """What came is what is sent next, as in bench/transport.cc."""
    global data, into
    if rank % 2 == 0:
        dist.send(data[:elements], rank ^ 1)
        dist.recv(into[:elements], rank ^ 1)
    else:
        dist.recv(into[:elements], rank ^ 1)
        dist.send(data[:elements], rank ^ 1)
    data, into = into, data


def operation_of(name, elements):
    part, whole, other = elements // ranks, data[:elements], into[:elements]
    if name == "all-reduce":
        return lambda: dist.all_reduce(whole)
    if name == "all-gather":
        parts, mine = list(whole.split(part)), other[:part]
        return lambda: dist.all_gather(parts, mine)
    return lambda: ping_pong(elements)


def right(name, elements):
    part, place = elements // ranks, (torch.arange(elements, dtype=torch.int32) % 31).float()
    data[:elements] = place * (rank + 1)
    into[:part] = data[rank * part:][:part]
    operation_of(name, elements)()
    if name == "all-reduce":
        return torch.equal(data[:elements], place * (ranks * (ranks + 1) // 2))
    if name == "all-gather":
        return all(torch.equal(data[owner * part:][:part], place[owner * part:][:part] * (owner + 1)) for owner in range(ranks))
    return torch.equal(data[:elements], place * ((rank ^ 1) + 1))


def seconds(name, elements, times):
    data[:elements].zero_()
    operation = operation_of(name, elements)
    operation()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        operation()
    return time.perf_counter() - begin


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    print("ready", flush=True)
    for line in sys.stdin:
        task, name, size, *times = line.split()
        if task == "check":
            print("right" if right(name, int(size) // 4) else "wrong", flush=True)
        else:
            print(f"{seconds(name, int(size) // 4, int(times[0])):.9f}", flush=True)


main()
