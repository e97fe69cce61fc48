#!/usr/bin/env python3
"""Runs a program of several ranks under the launchers of MPIs: bytes, failures, wrong launchers.

usage: launched_test.py PROGRAM [MPI=LIBRARY ...]      MPI is openmpi or mpich
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import time

PROGRAM = sys.argv[1]
LIBRARIES = dict(argument.split("=") for argument in sys.argv[2:])
# Root and more ranks than processors are refused by default.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "yes", "OMPI_MCA_hwloc_base_binding_policy": "none"}
HANGS = 60


def run(mpi, ranks, body, **variables):
    """(exit status, output, errors, seconds) of the program under the launcher of an MPI."""
    start = time.monotonic()
    done = subprocess.run([f"mpirun.{mpi}", "-n", str(ranks), PROGRAM, body], env={**os.environ, **OPEN_MPI, **variables},
                          capture_output=True, text=True, timeout=HANGS)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - start


def expect(right, fact, result):
    if not right:
        sys.exit(f"not so: {fact}\n{result}")


def check_moves(mpi):
    for ranks in (2, 3, 4):
        result = run(mpi, ranks, "moves")
        expect(result[0] == 0 and f"{ranks} ranks, {ranks} on this host" in result[1], f"{mpi} moves bytes", result)
    result = run(mpi, 2, "overlaps")
    expect(result[0] == 0, f"{mpi} moves several operations' bytes at once", result)
    result = run(mpi, 2, "large")
    expect(result[0] == 0 and "moved 2147495993 bytes" in result[1], f"{mpi} moves more than 2^31 bytes", result)


def check_threads(mpi):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([f"mpirun.{mpi}", "-n", "2", PROGRAM, "threads"], env={**environment, **OPEN_MPI},
                          capture_output=True, text=True, timeout=HANGS)
    each = max(1, len(os.sched_getaffinity(0)) // 2)
    expect(f"{each} {each} " in done.stdout and "2 ranks on 1 host" in done.stdout, f"{mpi}'s ranks share processors", done)


def check_idle(mpi):
    result = run(mpi, 2, "idle")
    expect(result[0] == 0, f"{mpi} waits", result)
    share = float(result[1].split()[1])
    expect(share < 0.5, f"{mpi} waits without spinning", result)
    print(f"{mpi}: a waiting rank takes {share:.1%} of a processor")


# Body: the pattern of the message.
# A killed rank is the launcher's to report.
FAILURES = {
    "fail_together": r"rank \d of 3 on \S+: no space left",
    "throw": r"rank 1 of 3 on \S+: was ended by an exception(.|\n)*rank 0 on .*(first|second)",
    "throw_beside": r"rank 1 of 3 on \S+: was ended by an exception(.|\n)*rank 0 on .*first",
    "uncaught": r"rank 1 of 3 on \S+: no such sample",
    "exit": r"rank 1 of 3 on \S+: called exit before its run had ended",
    "place": r"rank \d of 3 on \S+: is at operation 1, exchange \"(sums|weights)\", where",
    "untaken": r"rank 0 of 3 on \S+: has ended its run, where rank 1 is at operation 2, gather \"losses\"",
    "untaken_large": r"rank 0 of 3 on \S+: has ended its run, where rank 1 is at operation 2, gather \"losses\"",
    "stop": r"rank 1 of 3 on \S+: was not heard from for .* dead, stopped or unreachable",
    "stop_beside": r"rank 1 of 3 on \S+: was not heard from for .* dead, stopped or unreachable",
    "late": r"rank 1 of 3 on \S+: rank [02] has waited for it in operation 2, exchange \"second\"",
    "kill": r"(?i)signal.* 9",
}


def check_failures(mpi):
    # Ranks wait for each other's silence more than they compute.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = dict(zip(FAILURES, pool.map(lambda body: run(mpi, 3, body), FAILURES)))
    for body, message in FAILURES.items():
        result = results[body]
        text = result[1] + result[2]
        expect(result[0] != 0, f"{body} under {mpi} is a failure", result)
        expect(re.search(message, text), f"{body} under {mpi} is told", result)
        expect(len(re.findall(r"rank \d of 3", text)) <= 1, f"{body} under {mpi} is told once", result)
        print(f"{mpi}: {body}: all ended after {result[3]:.1f} s")


def check_launchers(mpi):
    others = [library for name, library in LIBRARIES.items() if name != mpi]
    for library in others:
        result = run(mpi, 2, "moves", SOTTO_MPI_LIBRARY=library)
        expect(result[0] != 0 and "finds 1: another MPI's mpirun" in result[2], f"{mpi} is not the MPI of {library}", result)
    result = run(mpi, 2, "moves", SOTTO_MPI_LIBRARY="/nowhere/libsotto_mpi.so")
    expect(result[0] != 0 and "launched 2 processes, and this build cannot join them" in result[2],
           f"{mpi} is missed", result)
    result = run(mpi, 1, "moves", SOTTO_MPI_LIBRARY="/nowhere/libsotto_mpi.so")
    expect(result[0] == 0 and "1 ranks, 1 on this host" in result[1], "one rank needs no MPI", result)


def main():
    for mpi in LIBRARIES:
        for check in (check_moves, check_threads, check_idle, check_launchers, check_failures):
            check(mpi)
    # Slurm's srun without an MPI starts programs that do not know of each other.
    slurm = {**os.environ, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SOTTO_MPI_LIBRARY": "/nowhere/x.so"}
    alone = subprocess.run([PROGRAM, "moves"], env=slurm, capture_output=True, text=True, timeout=HANGS)
    expect(alone.returncode != 0 and "Slurm's srun launched 2 processes" in alone.stderr, "srun is noticed", alone)
    shell = subprocess.run([PROGRAM, "moves"], env={**slurm, "SLURM_PTY_PORT": "7"}, capture_output=True, text=True,
                           timeout=HANGS)
    expect("a shell of `srun --pty`" in shell.stderr and "mpirun" not in alone.stderr, "Slurm's shell is noticed", shell)


main()
