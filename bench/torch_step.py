"""The peer of bench/step: the same model, batch and accumulation in PyTorch eager; under WORLD_SIZE 2 its DDP over Gloo.

Answers each line it reads with the seconds of one step and its loss.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

from torch_llama import Llama

MODEL = dict(vocabulary=257, hidden=512, layers=8, heads=8, kv_heads=8, head_dim=64, ffn=1408, eps=1e-5, theta=10000.0)
SEQUENCES, LENGTH, MICRO_BATCH = 16, 512, 4


def initialise(model):
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            deviation = 0.02 / (2 * MODEL["layers"]) ** 0.5 if "o_proj" in name or "down_proj" in name else 0.02
            torch.nn.init.normal_(parameter, std=deviation)


def main():
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = Llama(MODEL, LENGTH)
    initialise(model)
    wrapped = model
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
        wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.95), foreach=True)
    tokens = torch.frombuffer(bytearray(open(sys.argv[1], "rb").read()), dtype=torch.uint8).long()
    own = SEQUENCES // world
    print("ready", flush=True)
    number = 0
    for _ in sys.stdin:
        begin = time.perf_counter()
        total = 0.0
        for m in range(own // MICRO_BATCH):
            first = number * SEQUENCES + rank * own + m * MICRO_BATCH
            rows = torch.stack([tokens[(first + i) * LENGTH % (len(tokens) - LENGTH - 1):][: LENGTH + 1] for i in range(MICRO_BATCH)])
            last = m == own // MICRO_BATCH - 1
            if world > 1 and not last:
                with wrapped.no_sync():
                    loss = wrapped(rows[:, :-1], rows[:, 1:]) / (own * LENGTH)
                    loss.backward()
            else:
                loss = wrapped(rows[:, :-1], rows[:, 1:]) / (own * LENGTH)
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        number += 1
        print(f"{time.perf_counter() - begin:.6f} {total:.6f}", flush=True)


main()
