#!/usr/bin/env python3
"""Times steps of PyTorch, and private ones of Opacus, on several processes over gloo beside one process with as many
threads: what bench_rank_steps times of ours. Prints one JSON object for each model and mode, with its keys.

    rank_peers.py --models mnist,cifar10,lstm --batch 512

Every round starts processes of its own, those alone and those together in turn. The figures are medians over rounds of
the median step, and `speed` is the median over rounds of alone / together. A process has one core for each thread.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import warnings

MODES = ("ordinary", "flat")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="mnist,cifar10,lstm")
    p.add_argument("--modes", default=",".join(MODES), help="default: %(default)s")
    p.add_argument("--batch", type=int, default=512, help="samples in a step of all processes; default: %(default)s")
    p.add_argument("--ranks", type=int, default=2, help="processes; default: %(default)s")
    p.add_argument("--threads", type=int, default=1, help="threads of each; default: %(default)s")
    p.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    p.add_argument("--steps", type=int, default=4, help="timed in a round, after one that is not; default: %(default)s")
    p.add_argument("--seconds", type=float, default=600, help="limit for a round; default: %(default)s")
    p.add_argument("--one", nargs=2, metavar=("MODEL", "MODE"), help=argparse.SUPPRESS)
    return p.parse_args()


def network(torch, name, private):
    """The network, and a function that makes a batch of so many samples for it."""
    nn, words = torch.nn, 10_004

    class MeanOver(nn.Module):
        def __init__(self, *axes):
            super().__init__()
            self.axes = axes

        def forward(self, x):
            return x.mean(self.axes)

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            if private:
                from opacus.layers import DPLSTM as layer
            else:
                layer = nn.LSTM
            self.layer = layer(100, 100, batch_first=True)

        def forward(self, x):
            return self.layer(x)[0]

    def images(*shape):
        return lambda n: (torch.rand(n, *shape), torch.randint(0, 10, (n,)))

    if name == "mnist":
        layers = [nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
                  nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32),
                  nn.ReLU(), nn.Linear(32, 10)]
        return nn.Sequential(*layers), images(1, 28, 28)
    if name == "cifar10":
        layers, channels = [], 3
        for width in (32, 64, 128):
            for _ in range(2):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.AvgPool2d(2, 2))
        layers += [nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 10, 3, padding=1), MeanOver(2, 3)]
        return nn.Sequential(*layers), images(3, 32, 32)
    if name == "lstm":
        layers = [nn.Embedding(words, 100), Lstm(), MeanOver(1), nn.Linear(100, 2)]
        return nn.Sequential(*layers), lambda n: (torch.randint(0, words, (n, 256)), torch.randint(0, 2, (n,)))
    sys.exit(f"rank_peers.py: no model {name}: mnist, cifar10, lstm")


def trained(torch, net, mode, ranks, own):
    """What computes the network's outputs, and its optimizer; `own`: the samples of this process in a step."""
    plain = torch.optim.SGD(net.parameters(), lr=0.01)
    if mode == "ordinary":
        return (torch.nn.parallel.DistributedDataParallel(net) if ranks > 1 else net), plain
    from opacus import GradSampleModule
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from opacus.optimizers import DistributedDPOptimizer, DPOptimizer
    # As PrivacyEngine.make_private does.
    module = GradSampleModule(DifferentiallyPrivateDistributedDataParallel(net) if ranks > 1 else net)
    optimizer = DistributedDPOptimizer if ranks > 1 else DPOptimizer
    return module, optimizer(plain, noise_multiplier=1.1, max_grad_norm=1.0, expected_batch_size=own)


def run_one(args):
    """One process: prints the median milliseconds of its steps, and its processor time in each."""
    warnings.filterwarnings("ignore")
    import torch
    ranks, threads = int(os.environ["WORLD_SIZE"]), int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    model, mode = args.one
    net, make = network(torch, model, mode != "ordinary")
    own = args.batch // ranks
    module, optimizer = trained(torch, net, mode, ranks, own)
    x, y = make(own)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()

    step()
    seconds, before = [], time.process_time()
    for _ in range(args.steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"ms": statistics.median(seconds) * 1e3, "cpu_ms": (time.process_time() - before) / args.steps * 1e3,
                      "torch": torch.__version__}), flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        return at.getsockname()[1]


def one_round(args, model, mode, ranks, threads):
    """The slowest process' milliseconds of a step, and the processor time of all."""
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, __file__, "--one", model, mode, "--batch", str(args.batch), "--steps", str(args.steps)]
    port = free_port()
    running = []
    for rank in range(ranks):
        own = [cores[k % len(cores)] for k in range(rank * threads, (rank + 1) * threads)]
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS=str(threads))
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment,
                                        preexec_fn=lambda own=own: os.sched_setaffinity(0, own)))
    try:
        printed = [process.communicate(timeout=args.seconds)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    if any(process.returncode for process in running):
        sys.exit(f"rank_peers.py: {model}, {mode}: a process ended with {[p.returncode for p in running]}")
    lines = [json.loads(text.splitlines()[-1]) for text in printed]
    return max(line["ms"] for line in lines), sum(line["cpu_ms"] for line in lines), lines[0]["torch"]


def main():
    args = arguments()
    if args.one:
        return run_one(args)
    for model in args.models.split(","):
        for mode in args.modes.split(","):
            if mode not in MODES:
                sys.exit(f"rank_peers.py: no mode {mode}: {', '.join(MODES)}")
            rounds = []
            for _ in range(args.rounds):
                alone = one_round(args, model, mode, 1, args.ranks * args.threads)
                rounds.append((alone, one_round(args, model, mode, args.ranks, args.threads)))
            alone, together = zip(*rounds)
            middle = {"alone_ms": [a[0] for a in alone], "together_ms": [t[0] for t in together],
                      "alone_cpu_ms": [a[1] for a in alone], "together_cpu_ms": [t[1] for t in together],
                      "speed": [a[0] / t[0] for a, t in rounds]}
            print(json.dumps({"model": model, "mode": mode, "batch": args.batch, "ranks": args.ranks,
                              "threads": args.threads, "torch": alone[0][2],
                              **{key: round(statistics.median(values), 3) for key, values in middle.items()}}), flush=True)


if __name__ == "__main__":
    main()
