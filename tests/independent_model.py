"""One device of HSPMD against an independent model in double precision: PyTorch with the same initial values (the
counter-based generator written again here), the same data order, AdamW, clipping and schedule.

    independent_model.py HSPMD SOURCE_DIR
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

sys.path.insert(0, os.path.join(sys.argv[2], "bench"))
from torch_llama import Llama  # noqa: E402

MASK = (1 << 64) - 1
STEPS, LENGTH, BATCH, SEED = 6, 24, 5, 3
MODEL = dict(vocabulary=257, hidden=48, layers=3, heads=6, kv_heads=2, head_dim=8, ffn=40, eps=1e-5, theta=10000.0)
LR, MIN_LR, WARMUP, DECAY, BETAS, EPS, CLIP = 1e-2, 1e-3, 2, 0.1, (0.9, 0.95), 1e-8, 0.5


def mix(x):
    x = (x + np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def name_hash(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return np.uint64(h)


def normal(name, count, deviation):
    with np.errstate(over="ignore"):
        stream = mix(mix(np.uint64(SEED)) ^ name_hash(name + "/master"))
        i = np.arange(count, dtype=np.uint64)
        uniform = lambda bits: ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        u = uniform(mix(stream + np.uint64(2) * i))
        v = uniform(mix(stream + np.uint64(2) * i + np.uint64(1)))
    return deviation * np.sqrt(-2 * np.log(u)) * np.cos(2 * math.pi * v)


def set_initial_values(model):
    small = 0.02 / math.sqrt(2 * MODEL["layers"])
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            continue
        deviation = small if "o_proj" in name or "down_proj" in name else 0.02
        values = normal(name, parameter.numel(), deviation).reshape(parameter.shape)
        parameter.data.copy_(torch.from_numpy(values))


def learning_rate(t):
    if t <= WARMUP:
        return LR * t / WARMUP
    return MIN_LR + 0.5 * (LR - MIN_LR) * (1 + math.cos(math.pi * (t - WARMUP) / (STEPS - WARMUP)))


def expected(tokens):
    torch.manual_seed(0)
    model = Llama(MODEL, LENGTH, torch.float64)
    set_initial_values(model)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}], betas=BETAS, eps=EPS)
    records = []
    for t in range(1, STEPS + 1):
        first = [(t - 1) * BATCH + i for i in range(BATCH)]
        rows = [tokens[i * LENGTH : i * LENGTH + LENGTH + 1] for i in first]
        batch = torch.tensor(rows, dtype=torch.long)
        optimizer.zero_grad()
        loss = model(batch[:, :-1], batch[:, 1:]) / (BATCH * LENGTH)
        loss.backward()
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
        for p in model.parameters():
            p.grad.mul_(min(1.0, CLIP / (norm.item() + 1e-6)))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(t)
        optimizer.step()
        records.append((loss.item(), norm.item()))
    return records


def ours(folder, text):
    with open(f"{folder}/text", "wb") as file:
        file.write(text)
    c = MODEL
    config = dict(model_type="llama", vocab_size=c["vocabulary"], hidden_size=c["hidden"], num_hidden_layers=c["layers"], num_attention_heads=c["heads"],
                  num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"], intermediate_size=c["ffn"], rms_norm_eps=c["eps"], rope_theta=c["theta"])
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    run = {"format": "hspmd-train/1", "model": {"config": "config.json"},
           "data": {"path": "text", "sequence_length": LENGTH, "shuffle": False, "global_batch": BATCH},
           "optimizer": {"lr": LR, "min_lr": MIN_LR, "warmup_steps": WARMUP, "weight_decay": DECAY, "betas": list(BETAS), "eps": EPS, "clip_norm": CLIP},
           "precision": "fp64", "steps": STEPS, "seed": SEED, "log": {"json": f"{folder}/log.jsonl"}}
    with open(f"{folder}/run.yaml", "w") as file:
        json.dump(run, file)
    subprocess.run([sys.argv[1], "train", f"{folder}/run.yaml"], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in open(f"{folder}/log.jsonl")]


def main():
    text = bytes((i * i * 31 + i * 7 + i // 13) % 251 for i in range(STEPS * BATCH * LENGTH + 10))
    with tempfile.TemporaryDirectory() as folder:
        records = ours(folder, text)
    worst = 0.0
    for record, (loss, norm) in zip(records, expected(list(text) + [256])):
        worst = max(worst, abs(record["loss"] - loss), abs(record["grad_norm"] - norm))
    print(f"largest difference of loss and gradient norm over {len(records)} steps: {worst:.2e}")
    sys.exit(0 if len(records) == STEPS and worst < 1e-9 else 1)


main()
