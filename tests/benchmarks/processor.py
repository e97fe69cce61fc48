"""The processor that is measured on: its name and instruction sets, its cores, and whether others use it."""
import os
import pathlib
import platform
import re
import time

# The instruction sets that decide what a step costs, from narrow to wide.
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
# At most so much of a core is used where nothing else runs.
IDLE = 0.25


def described(cpuinfo=None):
    """Name, family and model, and which of INSTRUCTIONS are there; from the text of /proc/cpuinfo."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8") if cpuinfo is None else cpuinfo
    first = text.split("\n\n")[0]
    facts = dict(re.findall(r"^(.*?)\s*: (.*)$", first, re.M))
    flags = facts.get("flags", "").split()
    words = re.sub(r"\((R|TM|C)\)|\bProcessor\b|\bCPU\b", " ", facts.get("model name") or platform.machine() or "unknown", flags=re.I)
    return {"name": " ".join(words.split()), "family": facts.get("cpu family", ""), "model": facts.get("model", ""),
            "instructions": [name for name in INSTRUCTIONS if name in flags]}


def slug(processor):
    """A name for files: name, family and model, and the widest instruction set."""
    parts = [processor["name"], processor["family"], processor["model"], *processor["instructions"][-1:]]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def siblings(number):
    """The processors of a processor's core, in words."""
    path = pathlib.Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return str(number)


def cores(threads, usable=None, core_of=siblings):
    """So many of the processors that this process may use, one of each core before two of any."""
    turns, order = {}, []
    for number in sorted(usable or os.sched_getaffinity(0)):
        core = core_of(number)
        turns[core] = turns.get(core, 0) + 1
        order.append((turns[core], number))
    return [number for _, number in sorted(order)][:threads]


def busy_cores(seconds=1.0):
    """How many cores others used on average meanwhile."""
    def ticks():
        numbers = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]]
        return sum(numbers) - numbers[3] - numbers[4]  # all but idle and waiting

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds
