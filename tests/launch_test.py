"""One process a rank, as `hspmd launch` and other launchers start them: losses, faults, signals, and what is left behind.

    launch_test.py HSPMD
"""
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from cli_cases import FAULTS, RUN, STRATEGY, check, expect

HSPMD = os.path.abspath(sys.argv[1])
RANKS = 3
STEPS = 4
TORCHRUN = "/usr/bin/torchrun"  # Debian's python3-torch


class Folder:
    """A run file, its strategy and its text; every process of a test carries the folder's mark, so none can hide."""

    def __init__(self, path):
        self.path = path
        self.mark = secrets.token_hex(8)
        self.shared = set(os.listdir("/dev/shm"))
        os.mkdir(f"{path}/text")
        self.write("text/a", "the quick brown fox jumps over the lazy dog\n" * 200)
        self.write("strategy.yaml", STRATEGY)
        self.write("run.yaml", RUN.replace("steps: 2", f"steps: {STEPS}"))

    def write(self, name, text):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(text)

    def start(self, *command, **variables):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "HSPMD_TOKEN")}
        environment.update(HSPMD_TEST_MARK=self.mark, **{k: str(v) for k, v in variables.items()})
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                cwd=self.path, env=environment)

    def run(self, *command, **variables):
        return ended(self.start(*command, **variables))

    def launch(self, *words, **variables):
        return self.run(HSPMD, "launch", "-n", RANKS, *words, **variables)

    def losses(self, name):
        if not os.path.exists(f"{self.path}/{name}"):
            return []
        with open(f"{self.path}/{name}") as file:
            return [json.loads(line)["loss"] for line in file]

    def processes(self):
        """Those that carry the mark, with their environment."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    entries = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if f"HSPMD_TEST_MARK={self.mark}" in entries:
                found[int(pid)] = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        return found

    def rank(self, number, seconds=20):
        """The process of a rank, once it is there, and its environment."""
        end = time.time() + seconds
        while time.time() < end:
            for pid, entries in self.processes().items():
                if entries.get("RANK") == str(number):
                    return pid, entries
            time.sleep(0.02)
        raise SystemExit(f"launch_test: rank {number} did not start within {seconds} s")

    def nothing_left(self, name):
        end = time.time() + 5
        while self.processes() and time.time() < end:
            time.sleep(0.02)
        check(name, not self.processes(), f"processes are left: {list(self.processes())}")
        left = set(os.listdir("/dev/shm")) - self.shared
        check(name, not left, f"shared memory is left: {left}")


def ended(process, seconds=90):
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        text += f"\nlaunch_test: did not end within {seconds} s"
    return subprocess.CompletedProcess(process.args, process.returncode, text)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def endless(folder, log, seconds=30, **variables):
    """A launched run that does not end by itself, once its first step is written."""
    process = folder.start(HSPMD, "launch", "-n", RANKS, "--", "train", "run.yaml", "--steps", 1000000, "--log.json", log,
                           **variables)
    end = time.time() + seconds
    while not folder.losses(log):
        if time.time() > end:
            process.kill()
            raise SystemExit(f"launch_test: no step within {seconds} s in {log}\n{process.stdout.read()}")
        time.sleep(0.02)
    return process


def losses_are_those_of_threads(folder):
    expect("threads", folder.run(HSPMD, "train", "run.yaml", "--log.json", "threads.jsonl"), 0)
    expect("launch", folder.launch("--", "train", "run.yaml", "--log.json", "launch.jsonl"), 0, "[0] ")
    check("launch", folder.losses("launch.jsonl") == folder.losses("threads.jsonl"), "losses differ from those of threads")
    hosts = folder.launch("--hosts", "near:2,far:1", "--interface", "lo", "--remote", "env HSPMD_HOST={host} {command}", "--",
                          "train", "run.yaml", "--log.json", "hosts.jsonl")
    expect("two hosts", hosts, 0)
    pairs = list(zip(folder.losses("hosts.jsonl"), folder.losses("threads.jsonl")))
    check("two hosts", len(pairs) == STEPS and all(abs(a - b) <= 1e-5 * abs(b) for a, b in pairs), f"losses differ: {pairs}")
    folder.nothing_left("losses")


def options(folder):
    expect("log-dir", folder.launch("--log-dir", "logs", "--", "train", "run.yaml"), 0)
    for rank in range(RANKS):
        check("log-dir", os.path.exists(f"{folder.path}/logs/rank-{rank}.log"), f"no log of rank {rank}")
    with open(f"{folder.path}/logs/rank-0.log") as file:
        check("log-dir", "loss" in file.read(), "rank 0's log has no step")
    cpu = min(os.sched_getaffinity(0))
    expect("cpus", folder.launch("--cpus", ";".join([str(cpu)] * RANKS), "--", "train", "run.yaml"), 0)
    expect("cpus too few", folder.launch("--cpus", "0;0", "--", "train", "run.yaml"), 2, "--cpus", "3 ranks", "Received 2")
    expect("cpus absurd", folder.launch("--cpus", "0;0;99999", "--", "train", "run.yaml"), 2, "--cpus")
    expect("hosts do not add up", folder.launch("--hosts", "a:1", "--", "train", "run.yaml"), 2, "3 ranks", "Received 1")
    expect("hosts wrong", folder.launch("--hosts", "a:x", "--", "train", "run.yaml"), 2, "--hosts")
    expect("an option for a host", folder.launch("--hosts", "-oProxyCommand=x:3", "--", "train", "run.yaml"), 2, "--hosts")
    expect("no command", folder.launch(), 2, "a command must follow")
    expect("unwritable logs", folder.launch("--log-dir", "/proc/none", "--", "train", "run.yaml"), 2, "--log-dir")
    expect("listen wrong", folder.launch("--listen", "192.0.2.1", "--", "train", "run.yaml"), 2, "192.0.2.1")
    expect("too few devices", folder.run(HSPMD, "launch", "-n", 2, "--", "train", "run.yaml"), 2,
           "the strategy has 3 devices, WORLD_SIZE is 2")
    expect("unreachable host", folder.launch("--hosts", "a:2,b:1", "--remote", "sh -c 'exit 255' {host} {command}", "--",
                                             "train", "run.yaml"), 255, "255")
    folder.nothing_left("options")


def deaths(folder):
    for name, kill, code in [("killed", signal.SIGKILL, 137), ("segmentation fault", signal.SIGSEGV, 139)]:
        process = endless(folder, f"{kill}.jsonl")
        begin = time.time()
        os.kill(folder.rank(1)[0], kill)
        expect(f"rank {name}", ended(process), code, "rank 1")
        check(f"rank {name}", time.time() - begin < 15, f"took {time.time() - begin:.1f} s")
        folder.nothing_left(f"rank {name}")

    process = endless(folder, "stop.jsonl", HSPMD_TIMEOUT_S=2)
    os.kill(folder.rank(1)[0], signal.SIGSTOP)
    result = ended(process)
    check("rank stopped", result.returncode != 0 and "rank 1" in result.stdout, f"exit {result.returncode}\n{result.stdout}")
    folder.nothing_left("rank stopped")

    process = endless(folder, "launcher.jsonl")
    process.kill()
    process.wait()
    process.stdout.close()
    folder.nothing_left("launcher killed")

    for name, sent, code in [("Ctrl-C", signal.SIGINT, 130), ("SIGTERM", signal.SIGTERM, 130)]:
        process = endless(folder, f"{name}.jsonl")
        process.send_signal(sent)
        expect(name, ended(process), code)
        folder.nothing_left(name)


def by_hand(folder, *flags, ranks=range(RANKS), own=None, own_program=HSPMD, own_flags=(), **shared):
    """Ranks without `hspmd launch`, and what each printed; `own` gives a rank's variables, `own_...` what rank 1 runs."""
    own = own or (lambda rank: {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "HSPMD_TOKEN": "t" * 32})
    every = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "HSPMD_TIMEOUT_S": 3}
    started = []
    for rank in ranks:
        program, extra = (own_program, own_flags) if rank == 1 else (HSPMD, ())
        started.append(folder.start(program, "train", "run.yaml", *flags, *extra, **{**every, **own(rank), **shared}))
    return [ended(process) for process in started]


def starts_that_cannot_hang(folder):
    for result in by_hand(folder):
        expect("by hand", result, 0)
    for rank, result in zip((0, 2), by_hand(folder, ranks=(0, 2))):
        expect(f"rank 1 is missing, says rank {rank}", result, 1, "rank 1 never joined")
    for result in by_hand(folder, ranks=(1,)):
        expect("nobody hosts", result, 1, "127.0.0.1")

    folder.write("other_strategy.yaml", STRATEGY.replace("layers: [0, 2]", "layers: [0, 3]").replace("[2, 4]", "[3, 4]"))
    os.mkdir(f"{folder.path}/other_text")
    folder.write("other_text/a", "the quick brown fox jumps over the lazy cat\n" * 200)
    other = f"{folder.path}/other_hspmd"
    shutil.copy(HSPMD, other)
    with open(other, "ab") as file:
        file.write(b"another build")
    for what, different in [("strategy", {"own_flags": ("--strategy", "other_strategy.yaml")}),
                            ("data", {"own_flags": ("--data.path", "other_text")}),
                            ("program", {"own_program": other})]:
        for rank, result in enumerate(by_hand(folder, **different)):
            expect(f"another {what}, says rank {rank}", result, 2, "must run the same program", f"the {what} (rank 1)")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        # Rank 0 hosts the control plane beside MASTER_PORT.
        port = taken.getsockname()[1]
        for result in by_hand(folder, ranks=(0,), MASTER_PORT=port - 1):
            expect("port in use", result, 1, str(port))
    for result in by_hand(folder, ranks=(0,), MASTER_ADDR="192.0.2.1"):
        expect("a host that is not ours", result, 2, "192.0.2.1")
    for result in by_hand(folder, ranks=(0,), HSPMD_TOKEN=""):
        expect("no token", result, 2, "HSPMD_TOKEN")
    for result in by_hand(folder, ranks=(0,), WORLD_SIZE=0):
        expect("a world of none", result, 2, "WORLD_SIZE")
    folder.nothing_left("starts")


def tokens_are_compared(folder):
    def own(rank):
        return {"RANK": rank, "WORLD_SIZE": RANKS, "HSPMD_TOKEN": ("y" if rank == 1 else "x") * 32}

    results = by_hand(folder, own=own)
    expect("a wrong token", results[1], 2, "token")
    expect("and who waits for its owner", results[0], 1, "rank 1 never joined")
    folder.nothing_left("tokens")


def other_launchers(folder):
    def same_losses(name, log):
        check(name, folder.losses(log) == folder.losses("threads.jsonl"), "losses differ from those of threads")

    def open_mpi(rank):
        return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": RANKS, "OMPI_COMM_WORLD_LOCAL_RANK": rank}

    token = {"HSPMD_TOKEN": "m" * 32}
    for result in by_hand(folder, "--log.json", "variables.jsonl", own=open_mpi, HSPMD_TIMEOUT_S=20, **token):
        expect("mpirun's variables", result, 0)
    same_losses("mpirun's variables", "variables.jsonl")
    mpirun = shutil.which("mpirun")
    if mpirun:
        expect("mpirun", folder.run(mpirun, "--allow-run-as-root", "--oversubscribe", "-n", RANKS, HSPMD, "train", "run.yaml",
                                    "--log.json", "mpirun.jsonl", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), **token), 0)
        same_losses("mpirun", "mpirun.jsonl")
    else:
        print("mpirun: not installed; its variables alone were tried")
    if os.path.exists(TORCHRUN):
        # Its default of no redirection fails under Python 3.11, in torchrun itself.
        expect("torchrun", folder.run(TORCHRUN, "--redirects", 1, "--tee", 1, "--log_dir", "torchrun", "--nproc_per_node", RANKS,
                                      "--master_port", free_port(), "--no_python", HSPMD, "train", "run.yaml",
                                      "--log.json", "torchrun.jsonl", **token), 0)
        same_losses("torchrun", "torchrun.jsonl")
    else:
        print("torchrun: not installed; not tried")
    folder.nothing_left("other launchers")


def strangers(folder):
    process = folder.start(HSPMD, "launch", "-n", RANKS, "--", "train", "run.yaml", "--steps", 60, "--log.json", "strange.jsonl")
    _, entries = folder.rank(1)
    host, port = entries["HSPMD_CONTROL"].rsplit(":", 1)
    check("loopback by default", host == "127.0.0.1", host)
    pieces = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
              b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x01"]
    with contextlib.ExitStack() as held:
        for piece in pieces * 4:
            stranger = held.enter_context(socket.create_connection((host, int(port)), timeout=2))
            stranger.sendall(piece)
        expect("strangers", ended(process), 0)
    lines = folder.losses("strange.jsonl")
    check("strangers", len(lines) == 60, f"{len(lines)} steps of 60")
    folder.nothing_left("strangers")


def main():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for part in (losses_are_those_of_threads, options, deaths, starts_that_cannot_hang, tokens_are_compared,
                     other_launchers, strangers):
            begin = time.time()
            part(folder)
            print(f"{part.__name__}: {time.time() - begin:.1f} s", flush=True)
    for fault in FAULTS:
        print(f"FAULT {fault}")
    sys.exit(1 if FAULTS else 0)


main()
