"""What the tests of the command line share: a small job, and faults that are gathered and told at the end."""
STRATEGY = """format: hspmd-strategy/1
pipelines:
  - micro_batches: 2
    micro_batch_size: 1
    stages:
      - {devices: [0, 1], layers: [0, 2], tp: 2}
      - {devices: [2], layers: [2, 4]}
"""
RUN = """format: hspmd-train/1
model: {preset: tiny}
data: {path: text, sequence_length: 16, global_batch: 2}
optimizer: {lr: 1.0e-3}
steps: 2
strategy: strategy.yaml
kernels: reference
"""
FAULTS = []


def expect(name, result, code, *words):
    """The exit code is `code`, and every one of `words` is said."""
    text = result.stdout + (result.stderr or "")
    missing = [word for word in words if word not in text]
    if result.returncode != code or missing:
        FAULTS.append(f"{name}: exit {result.returncode} (wanted {code}), missing {missing}\n{text[-2500:]}")


def check(name, holds, what=""):
    if not holds:
        FAULTS.append(f"{name}: {what}")
