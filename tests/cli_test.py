"""The command line as a user meets it: good commands, and every kind of bad input with its exit code and its words.

    cli_test.py HSPMD SOURCE_DIR
"""
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

from cli_cases import FAULTS, RUN, STRATEGY, expect

HSPMD, ROOT = sys.argv[1], sys.argv[2]
KERNELS = ["--kernels", "reference"]


def run(*arguments, cwd=None):
    return subprocess.run([HSPMD, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=120)


TWO_DEVICES = "format: hspmd-cluster/1\ndevice_types: {d: {peak_tflops: {fp32: 1}}}\nnodes: [{name: a, type: d, devices: 2}]\n"


def bad_strategies(folder):
    rows = [
        ("layers overlap", STRATEGY.replace("[2, 4]", "[1, 4]"), ["pipelines[0].stages[1].layers", "overlaps", "must be 2"]),
        ("layers missing", STRATEGY.replace("[2, 4]", "[3, 4]"), ["missing", "begin must be 2"]),
        ("layers short", STRATEGY.replace("[2, 4]", "[2, 3]"), ["the model's 4 layers"]),
        ("device twice", STRATEGY.replace("[2]", "[1]"), ["device 1 stands already"]),
        ("tp wrong", STRATEGY.replace("tp: 2", "tp: 3"), ["tp x cp must be the 2 devices"]),
        ("unknown key", STRATEGY.replace("tp: 2", "tpp: 2"), ["strategy.yaml:6", "tpp is not known", '"tp"']),
        ("not built", STRATEGY.replace("pipelines:", "schedule: interleaved\npipelines:"), ["interleaved", "not built yet", "gpipe, 1f1b, zero_bubble"]),
        ("zero", STRATEGY.replace("pipelines:", "zero: 1\npipelines:"), ["zero", "not built yet"]),
        ("negative device", STRATEGY.replace("[0, 1]", "[-1, 1]"), ["integer from 0 to"]),
        ("huge device", STRATEGY.replace("[0, 1]", "[99999999999999999999, 1]"), ["integer from 0 to"]),
        ("word for number", STRATEGY.replace("micro_batches: 2", "micro_batches: two"), ["micro_batches", "integer", "two"]),
        ("no yaml", "format: [", ["must be YAML"]),
        ("other format", STRATEGY.replace("strategy/1", "strategy/9"), ["hspmd-strategy/1", "hspmd-strategy/9"]),
        ("duplicate key", STRATEGY + "pipelines: []\n", ["stands twice"]),
        ("empty", "", ["hspmd-strategy/1"]),
        ("empty key", STRATEGY + '"": 1\n', ['strategy.yaml:8: "" is not known']),
        ("key of two lines", STRATEGY + '"a\\nb": 1\n', ["a\\nb is not known"]),
        ("long key", STRATEGY + "k" * 900 + ": 1\n", ["k" * 120 + "... is not known"]),
        ("value of two lines", STRATEGY.replace("tp: 2", 'tp: "\\e[2J\\n"'), ["\\u001b[2J\\n"]),
        ("device often", STRATEGY.replace("[2]", "[" + "1, " * 5000 + "1]"), ["device 1 stands already", "problems more"]),
    ]
    for name, text, words in rows:
        with open(f"{folder}/bad/strategy.yaml", "w") as file:
            file.write(text)
        expect(name, run("check", f"{folder}/bad/strategy.yaml", "--model", "tiny"), 2, *words)
        expect(name + " (train)", run("train", f"{folder}/run.yaml", "--strategy", f"{folder}/bad/strategy.yaml"), 2)


def bad_runs(folder):
    rows = [
        (["--optimizer.lrr", "1"], ["optimizer.lrr is not known", '"lr"']),
        (["--optimizer.lr", "-1"], ["optimizer.lr", "number from 0"]),
        (["--steps", "many"], ["steps", "integer"]),
        (["--model.preset", "tinny"], ["one of tiny, small", '"tiny"']),
        (["--data.path", "nowhere"], ["data.path", "must exist", "nowhere"]),
        (["--data.global_batch", "3"], ["data.global_batch", "sum to, 2", '"3"']),
        (["--data.sequence_length", "0"], ["sequence_length", "from 1"]),
        (["--data.sequence_length", "1000000"], ["at least sequence_length + 1"]),
        (["--precision", "bf16"], ["bf16", "not built yet"]),
        (["--checkpoint.dir", "out"], ["checkpoint", "not built yet"]),
        (["--transport.kind", "processes"], ["processes", "hspmd launch"]),
        (["--data.tokenizer", "sentencepiece:x"], ["not built yet"]),
        (["--kernels", "paced"], ["cluster"]),
        (["--kernels", "cuda"], ["aten, reference, paced"]),
        (["--log.json", "/nowhere/log"], ["log.json", "written"]),
        (["--eval.every", "1"], ["data.validation"]),
        (["steps"], ["must belong to a flag"]),
        (["--steps", "many", "--log.every", "1"], ["--steps must be an integer"]),
        (["--strategy.pipelines.0.micro_batches", "0"], ["--strategy.pipelines[0].micro_batches must be an integer from 1"]),
        (["--strategy.pipelines.0.stages.0.tp", "3"], ["strategy.yaml", "tp x cp must be the 2 devices"]),
        (["--cluster", f"{folder}/two.yaml"], ["device 2 must be one of the cluster's 2"]),
        (["--steps"], ["must have a value"]),
        (["--steps", "-1"], ["hspmd: --steps must be"]),
        (["--format", "x"], ["--format must be"]),
    ]
    for arguments, words in rows:
        expect(" ".join(arguments), run("train", f"{folder}/run.yaml", *arguments), 2, *words)
    os.mkfifo(f"{folder}/pipe")
    expect("a pipe that nobody writes", run("train", f"{folder}/pipe"), 2, "somebody must write to this pipe")
    expect("a device", run("check", "/dev/zero"), 2, "must be a file, a pipe or a terminal")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        expect("a socket", run("check", f"{folder}/socket"), 2, "must be a file, a pipe or a terminal")
    expect("no file", run("train", f"{folder}/none.yaml"), 2, "must exist")
    expect("a folder", run("train", folder), 2, "is a folder")
    expect("no command", run(), 2)
    expect("unknown command", run("fly"), 2)


def one_line(path):
    """The file again, as Python's json writes it: all on one line."""
    with open(path) as file:
        plan = json.load(file)
    with open(path, "w") as file:
        json.dump(plan, file)
    return plan


def plans(folder):
    """What a plan file may say: check and train refuse alike, by file and key."""
    expect("plan", run("plan", "expand", f"{folder}/strategy.yaml", "--model", "tiny", "-o", f"{folder}/plan.json"), 0)
    plan = one_line(f"{folder}/plan.json")
    with open(f"{folder}/planned.yaml", "w") as file:
        file.write(RUN.replace("strategy: strategy.yaml", "plan: changed.json").replace("global_batch: 2", "global_batch: 2, validation: short") + "eval: {every: 1}\n")

    def expect_plan(name, change, code, *words):
        changed = json.loads(json.dumps(plan))
        change(changed)
        with open(f"{folder}/changed.json", "w") as file:
            json.dump(changed, file)
        expect(name + " (check)", run("check", f"{folder}/planned.yaml"), code, *words)
        expect(name + " (train)", run("train", f"{folder}/planned.yaml"), code, *words)

    up = "model.layers.1.mlp.up_proj.weight"
    expect_plan("plan as it is", lambda p: None, 0)
    expect_plan("unlike leaf", lambda p: p["tensors"].update({up + "/master": "{0-1: Dx2}"}), 0)
    expect_plan("other weights", lambda p: p["tensors"].update({up: "{0-1: S0x2w3:1}", up.replace("up", "gate"): "{0-1: S0x2w3:1}", up.replace("up", "down"): "{0-1: S1x2w3:1}"}), 0)
    expect_plan("typo", lambda p: p["tensors"].update({up.replace("up", "upp"): "{0-1: Dx2}"}), 2, "changed.json", "tensors." + up.replace("up", "upp"), f'"{up}"')
    expect_plan("fewer pipelines", lambda p: p["reshards"].update({"head.input": "top S0 {0: | 2:}"}), 2, "changed.json", "reshards.head.input", "1 pipelines")
    expect_plan("another device", lambda p: p["tensors"].update({up: "{7:}"}), 2, "changed.json", "tensors." + up, "7 is none of them")


def paths(folder):
    """In a file paths are beside it, on a flag in the working folder."""
    os.mkdir(f"{folder}/work")
    with open(f"{folder}/logged.yaml", "w") as file:
        file.write(RUN + "log: {json: beside.jsonl}\n")
    expect("log beside the file", run("train", "../logged.yaml", cwd=f"{folder}/work"), 0)
    expect("log of a flag", run("train", "--log.json", "here.jsonl", "../run.yaml", cwd=f"{folder}/work"), 0)
    expect("strategy of a flag", run("train", "--steps", "1", "../run.yaml", "--strategy", "../strategy.yaml", "--data.path", "../text", "--strategy.pipelines.0.micro_batches", "3", "--data.global_batch=3", cwd=f"{folder}/work"), 0, "micro-batches 3 x 1", "step 1/1")
    expect("path of a flag", run("train", "../run.yaml", "--data.path", "text", cwd=f"{folder}/work"), 2, "--data.path", "must exist")
    for name in ("beside.jsonl", "work/here.jsonl"):
        if not os.path.exists(f"{folder}/{name}"):
            FAULTS.append(f"paths: {name} must have been written")
    with open(f"{folder}/kept.jsonl", "w") as file:
        file.write("kept\n")
    expect("bad run", run("train", f"{folder}/run.yaml", "--log.json", f"{folder}/kept.jsonl", "--data.sequence_length", "1000000"), 2)
    if open(f"{folder}/kept.jsonl").read() != "kept\n":
        FAULTS.append("a run that never began must leave the old log")


def streams(folder):
    """Pipes are read once, to their end; paths in them are in the working folder."""
    for name, text in (("run", RUN), ("strategy", STRATEGY), ("cluster", TWO_DEVICES)):
        result = subprocess.run([HSPMD, "check", "/dev/stdin"], input=text, capture_output=True, text=True, cwd=folder, timeout=60)
        expect(f"check of a {name} on the standard input", result, 0, "ok")
    script = '"$0" check <(cat run.yaml) <(sleep 0.3; cat strategy.yaml) && "$0" train --steps 1 <(cat run.yaml) --strategy <(cat strategy.yaml)'
    result = subprocess.run(["bash", "-c", script, HSPMD], capture_output=True, text=True, cwd=folder, timeout=60)
    expect("a shell's pipes", result, 0, ": ok", "step 1/1")
    result = subprocess.run([HSPMD, "check", "/dev/stdin"], input=RUN + "stepz: 1\n", capture_output=True, text=True, cwd=folder, timeout=60)
    expect("a fault on the standard input", result, 2, "/dev/stdin:8: stepz is not known")


def memory(folder):
    """check and train plan the same bytes: the evaluation, too."""
    def limited(gib):
        with open(f"{folder}/limit.yaml", "w") as file:
            file.write("format: hspmd-cluster/1\ndevice_types: {d: {peak_tflops: {fp32: 1}, memory_gib: %r}}\nnodes: [{name: a, type: d, devices: 3}]\n" % gib)
        with open(f"{folder}/limited.yaml", "w") as file:
            file.write(RUN.replace("global_batch: 2", "global_batch: 2, validation: short") + "eval: {every: 1}\ncluster: limit.yaml\n")
        return run("check", f"{folder}/limited.yaml"), run("train", f"{folder}/limited.yaml")

    checked, trained = limited(0.001)
    needs = [int(line.split("must hold ")[1].split()[0]) for line in checked.stderr.splitlines() if "must hold" in line]
    if len(needs) != 3 or trained.returncode != 2:
        FAULTS.append(f"memory: each of three devices needs too much: {checked.stderr}{trained.stderr}")
        return
    for name, result in zip(("check", "train"), limited((max(needs)) / 2**30)):
        expect(f"{name} in just enough memory", result, 0)
    for name, result in zip(("check", "train"), limited((max(needs) - 1) / 2**30)):
        expect(f"{name} in a byte too little", result, 2, f"must hold {max(needs)} bytes", f"has {max(needs) - 1} ")


def explain(folder):
    result = run("explain", "--batch", f"{ROOT}/examples/pairs.jsonl", "--json")
    expect("explain --batch", result, 0)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    if len(lines) != sum(1 for line in open(f"{ROOT}/examples/pairs.jsonl") if line.strip()) or any("error" in line for line in lines):
        FAULTS.append("explain --batch: a line is missing or an error")
    for line in lines:
        if line["bytes"] < line["lower_bound_bytes"]:
            FAULTS.append(f"explain: {line['bytes']} bytes are below the bound")
    expect("explain", run("explain", "--from", "{0-1: Px2}", "--to", "{0-1: Dx2}", "--shape", "10x6"), 0, "AllReduce of 0,1")
    expect("explain bad", run("explain", "--from", "{0-1: Px3}", "--to", "{0-1: Dx2}", "--shape", "10x6"), 2, "must multiply to the 2 devices")
    expect("explain dim", run("explain", "--from", "{0-1: S5x2}", "--to", "{0-1: Dx2}", "--shape", "10x6"), 2, "every dim")
    with open(f"{folder}/pairs", "w") as file:
        file.write('{"from":"{0:}","to":"{0:}","shape":[1]}\nnonsense\n{"from":"{0:}","to":"{0:}","shape":[-1]}\n{"from":"{0-1: Px2}","to":"{0-1: Pmaxx2}","shape":[1]}\n')
    expect("explain a folder", run("explain", "--batch", folder), 2, "is a folder")
    expect("explain an endless line", run("explain", "--batch", "/dev/zero"), 2, "16 MiB")
    expect("explain both", run("explain", "--batch", f"{folder}/pairs", "--from", "{0:}"), 2, "must stand without")
    wide = ("--from", "{0-65535: S0x65536}", "--shape", "65536x65536")
    expect("explain too many shards", run("explain", *wide, "--to", "{0-65535: S1x65536}"), 2, "2^21 mentions")
    expect("explain too many devices", run("explain", *wide, "--to", "{0-65535: Dx65536}"), 2, "2^26 of a device")
    result = run("explain", "--batch", f"{folder}/pairs", "--json")
    expect("explain bad batch", result, 2)
    if ["error" in json.loads(line) for line in result.stdout.splitlines()] != [False, True, True, True]:
        FAULTS.append("explain: each bad line must give an error of its own")


def good(folder):
    expect("version", run("--version"), 0, "hspmd ")
    expect("check", run("check", f"{folder}/strategy.yaml", "--model", "tiny"), 0, "ok")
    expect("check run", run("check", f"{folder}/run.yaml"), 0, "ok")
    expect("check examples", run("check", *sorted(f"{ROOT}/examples/{n}" for n in os.listdir(f"{ROOT}/examples") if n.endswith(".yaml")), "--model", f"{ROOT}/examples/demo_model.json"), 0, "ok")
    result = run("check", *sorted(f"{ROOT}/examples/{n}" for n in os.listdir(f"{ROOT}/examples") if n.endswith(".yaml")))
    expect("check examples without a model", result, 0, "tiny Llama of 6 layers")
    if not all(line.endswith(": ok") for line in result.stdout.splitlines()):
        FAULTS.append(f"check without a model: every file must be ok: {result.stdout}")
    expect("print config", run("train", f"{folder}/run.yaml", "--print-config", "--optimizer.lr", "0.25"), 0, "0.25")
    os.symlink("/dev/null", f"{folder}/device")
    log = f"{folder}/log.jsonl"
    expect("train", run("train", f"{folder}/run.yaml", "--log.json", log, "--data.validation", f"{folder}/text", "--eval.every", "2"), 0, "step", "loss", "eval")
    records = [json.loads(line) for line in open(log)]
    steps = [r for r in records if "step" in r and "event" not in r]
    if len(steps) != 2 or not {"loss", "grad_norm", "lr", "tokens", "step_s", "tokens_per_s", "tflops", "mfu", "peak_memory_bytes", "strategy"} <= steps[0].keys():
        FAULTS.append(f"train: the log is not as described: {records}")
    if not any(r.get("event") == "eval" for r in records):
        FAULTS.append("train: no eval record")
    expect("plan", run("plan", "expand", f"{folder}/strategy.yaml", "--model", "tiny", "-o", f"{folder}/plan.json"), 0)
    expect("train --plan", run("train", f"{folder}/run.yaml", "--plan", f"{folder}/plan.json", "--log.json", f"{folder}/planned.jsonl"), 0)
    planned = [json.loads(line)["loss"] for line in open(f"{folder}/planned.jsonl")]
    if planned != [r["loss"] for r in steps]:
        FAULTS.append(f"train --plan must repeat the strategy's losses: {planned}")
    expect("plan on a device", run("plan", "expand", f"{folder}/strategy.yaml", "--model", "tiny", "-o", f"{folder}/device"), 0)
    if not os.path.islink(f"{folder}/device") or not stat.S_ISCHR(os.stat("/dev/null").st_mode):
        FAULTS.append("plan expand -o: a device must stay what it is")
    odd = f"{folder}/a 'b' \"c\" \\d"
    os.mkdir(odd)
    os.link(f"{folder}/strategy.yaml", f"{odd}/strategy.yaml")
    expect("a path with quotes", run("train", f"{folder}/run.yaml", "--steps", "0", "--strategy", f"{odd}/strategy.yaml"), 0)
    with open(f"{folder}/plan.json") as file:
        text = file.read()
    with open(f"{folder}/bad.json", "w") as file:
        file.write(text.replace("S0x2", "S9x2", 1))
    expect("bad plan", run("train", f"{folder}/run.yaml", "--plan", f"{folder}/bad.json"), 2, "bad.json")


def caught(pid):
    """The signals that a process has a handler for, a bit each."""
    with open(f"/proc/{pid}/status") as file:
        return int(next(line for line in file if line.startswith("SigCgt")).split()[1], 16)


def runtime_failures(folder):
    expect("non-finite loss", run("train", f"{folder}/run.yaml", "--optimizer.lr", "1e5", "--optimizer.clip_norm", "0", "--steps", "30"), 1, "must be finite", "appeared")
    process = subprocess.Popen([HSPMD, "train", f"{folder}/run.yaml", "--steps", "100000"], stdout=subprocess.PIPE, text=True)
    while "step" not in process.stdout.readline():
        pass
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    if process.returncode != 130:
        FAULTS.append(f"Ctrl-C: exit {process.returncode} (wanted 130)")
    for early in (signal.SIGINT, signal.SIGTERM):  # as soon as the program itself has begun
        process = subprocess.Popen([HSPMD, "train", f"{folder}/run.yaml", "--steps", "100000"], stdout=subprocess.DEVNULL)
        while not caught(process.pid) & (1 << (early - 1)):
            time.sleep(0.001)
        process.send_signal(early)
        if process.wait(60) != 130:
            FAULTS.append(f"an early {early.name}: exit {process.returncode} (wanted 130)")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/bad")
        for name, text in (("strategy.yaml", STRATEGY), ("run.yaml", RUN), ("two.yaml", TWO_DEVICES), ("text", "The quick brown fox. " * 40), ("short", "The lazy dog sleeps, and so on, and so on.")):
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        good(folder)
        bad_strategies(folder)
        bad_runs(folder)
        explain(folder)
        plans(folder)
        paths(folder)
        streams(folder)
        memory(folder)
        runtime_failures(folder)
    print("\n".join(FAULTS) if FAULTS else "all commands behaved")
    sys.exit(1 if FAULTS else 0)


main()
