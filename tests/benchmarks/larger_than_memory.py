#!/usr/bin/env python3
"""Trains on a table that is larger than the memory it may use; prints seconds and the peaks of memory.

usage: larger_than_memory.py PATH_OF_TABULAR --folder DIR [--table BYTES] [--memory BYTES] [-- OPTIONS...]

The table of made-up people and its encoded rows lie in DIR, which must be on a disk with room for three tables. As root,
training runs in a memory cgroup, which counts file pages in use, too, and ends what needs more; otherwise without a limit.
OPTIONS are further ones of `tabular train`.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROWS_AT_A_TIME = 1 << 20


def write_table(tabular, folder, size):
    """Appends parts of the endless table to one file; returns it, the schema and a table for the test."""
    table, schema, part, test = (folder / name for name in ("table.csv", "schema.json", "part.csv", "test.csv"))
    subprocess.run([tabular, "people", "--rows", "10000", "--seed", "1", "--out", test, "--schema", schema], check=True)
    with open(table, "wb") as to:
        for seed in range(2, 1 << 30):
            subprocess.run([tabular, "people", "--rows", str(ROWS_AT_A_TIME), "--seed", str(seed), "--out", part], check=True)
            rows = part.read_bytes()
            part.unlink()
            to.write(rows if seed == 2 else rows.partition(b"\n")[2])
            if to.tell() >= size:
                return table, schema, test


class Cgroup:
    """A memory cgroup of version 2 or 1 below the root."""

    def __init__(self, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        first = (root / "memory").is_dir()
        self.path = root / ("memory" if first else "") / f"sotto-{os.getpid()}"
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))


def cgroup(limit):
    try:
        return Cgroup(limit)
    except OSError as error:
        print(f"no cgroup ({error}): training has no limit", file=sys.stderr)
        return None


def watched(command, group):
    """Runs the command; returns its status, and the peaks of all memory and of memory that is no file's, in bytes."""
    peaks = {"VmHWM": 0, "RssAnon": 0}
    with subprocess.Popen(command, preexec_fn=group.enter if group else None) as process:
        while process.poll() is None:
            for line in pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], 1024 * int(value.split()[0]))
            time.sleep(0.1)
    return process.returncode, *peaks.values()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2][len("usage: "):])
    parser.add_argument("tabular", type=os.path.abspath)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--table", type=float, default=4e9)
    parser.add_argument("--memory", type=float, default=1e9)
    ours, _, options = "\0".join(sys.argv[1:]).partition("\0--\0")
    given = parser.parse_args(ours.split("\0"))
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = pathlib.Path(name)
        table, schema, test = write_table(given.tabular, folder, given.table)
        group = cgroup(int(given.memory))
        start = time.monotonic()
        try:
            status, resident, anonymous = watched(
                [given.tabular, "train", "--data", table, "--schema", schema, "--test", test, "--encode-in", folder,
                 *filter(None, options.split("\0"))], group)
        finally:
            if group:
                group.path.rmdir()
        print(f"a table of {table.stat().st_size / 1e9:.2f} GB, {'within' if group else 'not limited to'} "
              f"{given.memory / 1e9:g} GB of memory: status {status}, {time.monotonic() - start:.0f} s; at most "
              f"{resident / 1e6:.0f} MB in memory, {anonymous / 1e6:.0f} MB without files' pages")
    return status


if __name__ == "__main__":
    sys.exit(main())
