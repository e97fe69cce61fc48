#!/usr/bin/env python3
"""Compiles by nvcc and keeps what its assembler says of each kernel's registers and memory.

Usage: nvcc_report.py REPORT COMMAND..., where COMMAND is nvcc with its arguments. What is not part of the report is
passed on.
"""
import re
import subprocess
import sys

INFO = re.compile(r"ptxas info|^\s+\d+ bytes stack frame")


def main() -> int:
    report, *command = sys.argv[1:]
    done = subprocess.run([*command, "--resource-usage"], stderr=subprocess.PIPE, text=True, check=False)
    lines = done.stderr.splitlines(keepends=True)
    sys.stderr.writelines(line for line in lines if not INFO.search(line))
    if done.returncode == 0:
        with open(report, "w", encoding="utf-8") as file:
            file.writelines(line for line in lines if INFO.search(line))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
