#!/usr/bin/env python3
"""Private trainings of several processes: the same bits for every number, and lives that end with kill -9.

usage: ranks_program_test.py PROGRAM LIVES [MPI=LIBRARY ...]      MPI is openmpi or mpich
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading

PROGRAM, LIVES = sys.argv[1], int(sys.argv[2])
MPIS = [argument.split("=")[0] for argument in sys.argv[3:]]
# Root and more ranks than processors are refused by default.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "yes", "OMPI_MCA_hwloc_base_binding_policy": "none"}
HANGS = 60
STEPS = 20


def command(mpi, ranks):
    return ([f"mpirun.{mpi}", "-n", str(ranks)] if ranks > 1 else []) + [PROGRAM]


def trained(mpi, ranks, folder):
    done = subprocess.run(command(mpi, ranks) + [f"{folder}/{mpi}{ranks}"], env=ENVIRONMENT, capture_output=True,
                          text=True, timeout=HANGS)
    if done.returncode != 0:
        sys.exit(f"{ranks} ranks of {mpi}: {done.stderr}")
    return done.stdout.split(), open(f"{folder}/{mpi}{ranks}").read()


def live(mpi, ranks, files, kill_after):
    """Kills a random rank after this time, unless it has ended (None). Returns what rank 0 printed."""
    running = subprocess.Popen(command(mpi, ranks) + files, env=ENVIRONMENT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    processes = []

    def kill():
        if processes and running.poll() is None:
            try:
                os.kill(random.choice(processes), signal.SIGKILL)
            except ProcessLookupError:
                pass

    timer = None
    errors = ""
    for line in running.stderr:
        errors += line
        found = re.search(r"process (\d+)", line)
        if found:
            processes.append(int(found[1]))
        if kill_after is not None and timer is None and len(processes) == ranks:
            timer = threading.Timer(kill_after, kill)
            timer.start()
    output = running.stdout.read()
    running.wait(timeout=HANGS)
    if timer:
        timer.cancel()
    if running.returncode != 0 and kill_after is None:
        sys.exit(f"a life that nobody ended: {errors}")
    return output.split()


def check_lives(folder):
    files = [f"{folder}/ledger", f"{folder}/state"]
    for _ in range(LIVES):
        live(random.choice(MPIS), random.choice((2, 3)), files, random.uniform(0, 0.3))
    # The engine refuses a checkpoint of more steps than the ledger has releases.
    steps, releases, _ = live(MPIS[0], 2, files, None)
    if int(steps) != STEPS or int(releases) < STEPS:
        sys.exit(f"{steps} steps and {releases} releases after {LIVES} lives")
    print(f"{LIVES} lives: {steps} steps, {releases} releases")


with tempfile.TemporaryDirectory() as folder:
    alone = trained("none", 1, folder)
    for mpi in MPIS:
        for ranks in (2, 3, 4):
            if trained(mpi, ranks, folder) != alone:
                sys.exit(f"{ranks} ranks of {mpi} train other bits")
    check_lives(folder)
