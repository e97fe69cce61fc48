"""Files of every kind with bytes flipped, lost, doubled, moved and cut."""

import gzip
import json
import os
import shutil
import struct

from world import saved_step, state_of

MORE = 2  # steps that a run goes on for


def flip(random, data):
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1:]


def zero(random, data):
    begin, size = random.randrange(len(data)), random.choice((1, 16, 512))
    return data[:begin] + bytes(len(data[begin:begin + size])) + data[begin + size:]


def noise(random, data):
    begin, size = random.randrange(len(data)), random.choice((1, 16, 512))
    return data[:begin] + random.randbytes(len(data[begin:begin + size])) + data[begin + size:]


def cut(random, data):
    return data[:random.randrange(len(data))]


def lose(random, data):
    begin = random.randrange(len(data))
    return data[:begin] + data[begin + random.choice((1, 16, 512)):]


def double(random, data):
    begin = random.randrange(len(data))
    end = begin + random.choice((1, 16, 512))
    return data[:end] + data[begin:]


def append(random, data):
    return data + random.randbytes(random.choice((1, 16, 512)))


def lines(random, data):
    parts = data.splitlines(keepends=True)
    a, b = random.randrange(len(parts)), random.randrange(len(parts))
    parts[a], parts[b] = parts[b], parts[a]
    return b"".join(parts)


def number(random, data):
    """Another digit for one that is there."""
    digits = [place for place, byte in enumerate(data[:4096]) if chr(byte).isdigit()]
    if not digits:
        return flip(random, data)
    place = random.choice(digits)
    return data[:place] + str(random.randrange(10)).encode() + data[place + 1:]


def empty(_, __):
    return b""


MUTATIONS = (flip, flip, zero, noise, cut, lose, double, append, lines, number, empty)


def tensors_lie(before, after):
    """True where a file's tensors have changed and its header, with their checksum, has not."""
    (length,) = struct.unpack("<Q", before[:8])
    end = 8 + length
    checked = any("xxh" in key for key in json.loads(before[8:end])["__metadata__"])
    return checked and before[:end] == after[:end] and before != after


class Mutations:
    def __init__(self, world):
        self.world = world
        self.each = max(1, (world.count or 60) // 6)
        self.saved = world.folder()
        self.model = os.path.join(self.saved, "m")
        world.run(world.training("--save", self.model, "--ledger-block", "1", "--statistics", "--quiet", steps=4))
        self.data = world.folder()
        for part, count in (("train", 60), ("t10k", 20)):
            self.write_idx(f"{part}-images-idx3-ubyte", 2051, (count, 28, 28), count * 784)
            self.write_idx(f"{part}-labels-idx1-ubyte", 2049, (count,), count)

    def write_idx(self, name, magic, sizes, size):
        values = self.world.random.randbytes(size)
        body = values if len(sizes) > 1 else bytes(value % 10 for value in values)
        with open(os.path.join(self.data, name), "wb") as file:
            file.write(struct.pack(f">I{len(sizes)}I", magic, *sizes) + body)

    def run(self):
        for kind in (self.ledger, self.checkpoint, self.statistics, self.idx, self.gzip):
            for _ in range(self.each):
                kind()

    def mutated(self, path, name):
        """Changes a file, and gives its bytes before and after."""
        change = self.world.random.choice(MUTATIONS)
        with open(path, "rb") as file:
            before = file.read()
        after = change(self.world.random, before)
        with open(path, "wb") as file:
            file.write(after)
        self.world.begin(f"seed {self.world.seed}, attack {self.world.attacks + 1}: {name}, "
                         f"{change.__name__}")
        return before, after

    def copy(self):
        folder = self.world.folder()
        shutil.rmtree(folder)
        shutil.copytree(self.saved, folder)
        return os.path.join(folder, "m")

    def resume(self, model, *extra):
        return self.world.run([self.world.mnist, "--resume", model, "--threads", "1", "--steps",
                               str(saved_or(model, 4) + MORE), "--quiet", *extra])

    def ledger(self):
        model = self.copy()
        before, after = self.mutated(model + ".ledger", "ledger")
        spent = self.world.run([self.world.privacy_budget, "spent", "--ledger", model + ".ledger",
                                "--delta", "1e-5"])
        # An end that is missing, or zeros, as a crash leaves it, cannot be seen without the checkpoint.
        shorter = before.startswith(after.rstrip(b"\0"))
        if spent.status == 0 and not shorter and not after.startswith(before):
            self.world.dangerous("a ledger that was changed is read", spent)
        seen = self.world.run([self.world.privacy_budget, "inspect", model + ".ledger"])
        if (seen.status == 0) != (spent.status == 0):
            self.world.wrong("to inspect a ledger and to read it is not the same", seen)
        done = self.resume(model)
        if done.status == 0:
            self.world.ledger_counts(model + ".ledger", 4 + MORE)
        if done.status == 0 and not after.startswith(before[:-1]):
            self.world.dangerous("a ledger that was changed is gone on with", done)

    def checkpoint(self):
        model = self.copy()
        before, after = self.mutated(state_of(model), "state")
        done = self.resume(model)
        self.world.ledger_counts(model + ".ledger", 4)
        if done.status == 0 and tensors_lie(before, after):
            self.world.wrong("a checkpoint that was changed is gone on with", done)

    def statistics(self):
        model = self.copy()
        path = model + ".statistics.json"
        self.mutated(path, "statistics")
        self.resume(model, "--statistics")
        self.world.ledger_counts(model + ".ledger", 4)

    def train(self, folder):
        return self.world.run([self.world.mnist, "--data", folder, "--batch-size", "20", "--steps", "1",
                               "--noise-multiplier", "2", "--threads", "1", "--quiet"])

    def idx(self):
        folder = os.path.join(self.world.folder(), "data")
        shutil.copytree(self.data, folder)
        name = self.world.random.choice(sorted(os.listdir(folder)))
        before, after = self.mutated(os.path.join(folder, name), name)
        if self.train(folder).status == 0 and len(before) != len(after):
            self.world.wrong("data of another length are taken")

    def gzip(self):
        folder = os.path.join(self.world.folder(), "data")
        os.mkdir(folder)
        for name in os.listdir(self.data):
            with open(os.path.join(self.data, name), "rb") as file:
                packed = gzip.compress(file.read(), mtime=0)
            with open(os.path.join(folder, name + ".gz"), "wb") as file:
                file.write(packed)
        name = self.world.random.choice(sorted(os.listdir(folder)))
        before, after = self.mutated(os.path.join(folder, name), name)
        done = self.train(folder)
        if done.status == 0 and unpacked(after) != unpacked(before):
            self.world.wrong("packed data that were changed are taken", done)


def saved_or(model, otherwise):
    try:
        return saved_step(model)
    except Exception:  # whatever may be wrong with it
        return otherwise


def unpacked(data):
    try:
        return gzip.decompress(data)
    except Exception:  # whatever may be wrong with it
        return None
