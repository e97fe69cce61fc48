#!/usr/bin/env python3
"""Has the sample `privacy_budget` inspect ledgers that are whole, cut, altered, or hold stray lines.

Usage: privacy_budget_inspect.py PATH_OF_PRIVACY_BUDGET PATH_OF_WRITE_LEDGERS [unittest options]
"""

import hashlib
import json
import os
import random

from privacy_budget_runs import DELTA, Case, main, run, start_writing_ledgers

COPIES_CASES = 12


class Chain:
    """The lines of one copy of a ledger."""

    def __init__(self, header):
        self.lines = [header]

    def copy(self):
        other = Chain(None)
        other.lines = list(self.lines)
        return other

    def reserve(self, run, count, first_draw):
        body = (f'{{"run":"{run}","reserve":{count},"first_draw":{first_draw},"event":{{"mechanism":'
                '"gaussian","noise_multiplier":0.8,"sampling":"poisson","sampling_rate":0.02}')
        before = json.loads(self.lines[-1])["chain"]
        chain = hashlib.sha256((before + body).encode()).hexdigest()
        self.lines.append(f'{body},"chain":"{chain}"}}\n'.encode())


def random_copies(rng, header):
    """Copies of a ledger and of copies, and the releases of the runs that wrote on them."""
    copies, runs, releases = [Chain(header)], [0], 0
    for _ in range(rng.randint(4, 30)):
        here = rng.randrange(len(copies))
        if rng.random() < 0.25 and len(copies) < 4 and len(copies[here].lines) > 1:
            copies.append(copies[here].copy())
            here = len(copies) - 1
        count = rng.randint(1, 20)
        copies[here].reserve(f"{rng.getrandbits(128):032x}", count, rng.randint(0, 5))
        releases += count
    followed = {line for copy in copies for line in copy.lines[:-1]}
    return [copy for copy in copies if copy.lines[-1] not in followed], releases


def merge(rng, copies):
    """The lines of the copies in one file: the tails of all in the first, behind it, or mixed."""
    kind = rng.randrange(4)
    if kind == 0:
        return [line for copy in copies for line in copy.lines]
    mixed = list(copies[0].lines)
    for copy in copies[1:]:
        tail = [line for line in copy.lines if line not in mixed]
        if kind == 1:
            mixed += tail
        elif kind == 2:
            at = rng.randint(1, len(mixed))
            mixed[at:at] = tail
        else:
            places = sorted(rng.randint(1, len(mixed)) for _ in tail)
            for offset, (at, line) in enumerate(zip(places, tail)):
                mixed.insert(at + offset, line)
    return mixed


class Inspect(Case):
    def setUp(self):
        super().setUp()
        start_writing_ledgers(self.folder).communicate("")
        self.lines = self.read("plain.ledger").splitlines(keepends=True)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def write(self, *lines):
        """The path of a file that holds them."""
        path = self.path("other.ledger")
        with open(path, "wb") as file:
            file.write(b"".join(lines))
        return path

    def inspect(self, status, path, *arguments):
        """The answer as JSON and as text; the file is as it was."""
        before = self.read(path)
        os.chmod(path, 0o400)
        shown = run("inspect", path, *arguments)
        found = run("inspect", path, *arguments, "--json")
        for done in (shown, found):
            if status == 0:
                self.assertEqual((done.returncode, done.stderr), (0, ""), done)
            else:
                self.told(done, status, os.path.basename(path) + ":")
        self.assertEqual(self.read(path), before)
        os.chmod(path, 0o600)
        answer = json.loads(found.stdout)
        self.assertEqual(answer["whole"], status == 0)
        return answer, shown.stdout

    def cost(self, path):
        """What `spent` says of a ledger."""
        return self.ask("spent", *DELTA, "--ledger", path)["answers"][0]["epsilon"]

    def test_a_whole_ledger_is_whole_and_costs_what_it_does(self):
        for name in ("plain.ledger", "phases.ledger", "chosen.ledger", "adaptive.ledger",
                     "passes.ledger", "empty.ledger", "noiseless.ledger"):
            with self.subTest(name=name):
                found, text = self.inspect(0, self.path(name))
                self.assertEqual(found["right_lines"], len(self.read(name).splitlines()))
                self.assertEqual(found["answers"],
                                 [{"delta": 1e-5, "epsilon_at_least": self.cost(self.path(name))}])
                self.assertIn("all of them right", text)

    def test_deltas_and_neighbours_are_those_that_are_asked_for(self):
        one, _ = self.inspect(0, self.path("plain.ledger"), "--delta", "1e-4", "1e-6")
        self.assertEqual([answer["delta"] for answer in one["answers"]], [1e-4, 1e-6])
        before = self.succeed("inspect", "--delta", "1e-4", "1e-6", self.path("plain.ledger"))
        self.assertEqual(before, self.succeed("inspect", self.path("plain.ledger"), "--delta",
                                              "1e-4,1e-6"))
        other, _ = self.inspect(0, self.path("plain.ledger"), "--relation", "replace_one")
        self.assertGreater(other["answers"][0]["epsilon_at_least"],
                           one["answers"][1]["epsilon_at_least"])

    def test_a_ledger_that_is_not_private_says_so(self):
        found, text = self.inspect(0, self.path("seeded.ledger"))
        self.assertEqual(found["answers"][0]["epsilon_at_least"], "infinity")
        self.assertTrue(text.startswith("NOT PRIVATE: seeded <noise>\n"), text)

    def test_an_altered_line_ends_what_is_known_and_is_told_with_its_reason(self):
        path = self.write(*self.lines[:4], self.lines[4].replace(b'"poisson"', b'"poissen"'),
                          *self.lines[5:])
        found, text = self.inspect(1, path)
        self.assertEqual((found["right_lines"], found["wrong_line"]["line"]), (4, 5))
        self.assertIn("the checksum does not fit", found["wrong_line"]["reason"])
        self.assertIn('"poissen"', found["wrong_line"]["text"])
        self.assertEqual((found["stray_lines"], found["lines_behind"]),
                         (0, len(self.lines) - 5))
        least = found["answers"][0]["epsilon_at_least"]
        self.assertEqual(least, self.cost(self.write(*self.lines[:4])))
        self.assertLess(least, self.cost(self.path("plain.ledger")))
        self.assertRegex(text, r"wrong line +5: the checksum does not fit")
        self.assertIn("FILE.rescue", text)
        self.assertNotIn("sed -i", text)

    def test_a_line_that_is_missing_is_no_stray_one(self):
        found, _ = self.inspect(1, self.write(*self.lines[:3], *self.lines[4:]))
        self.assertEqual((found["right_lines"], found["stray_lines"]), (3, 0))

    def test_stray_lines_are_found_and_the_ledger_without_them_is_whole(self):
        for strays in ([b"\n"], [b"hello \x1b[31m\xff\n"], [b"one\n", b"{}\n", b"three\n"]):
            with self.subTest(strays=strays):
                path = self.write(*self.lines[:5], *strays, *self.lines[5:])
                found, text = self.inspect(1, path)
                self.assertEqual((found["right_lines"], found["stray_lines"],
                                  found["lines_behind"]),
                                 (5, len(strays), len(self.lines) - 5))
                self.assertEqual(found["answers"][0]["epsilon_at_least"],
                                 self.cost(self.path("plain.ledger")))
                last = 5 + len(strays)
                self.assertIn(f"sed -i.damaged 6{f',{last}' if last > 6 else ''}d FILE", text)
        self.inspect(0, self.write(*self.lines))

    def test_a_line_that_may_record_a_release_is_never_called_stray(self):
        other = self.read("phases.ledger").splitlines(keepends=True)
        half = self.lines[6][: len(self.lines[6]) // 2]
        for line in (self.lines[1], self.lines[7], other[3], half + b"\n", half + self.lines[5],
                     self.lines[6].replace(b'"reserve":64', b'"reserve":32')):
            with self.subTest(line=line):
                found, text = self.inspect(1, self.write(*self.lines[:6], line, *self.lines[6:]))
                self.assertEqual((found["right_lines"], found["stray_lines"]), (6, 0))
                self.assertEqual(found["answers"][0]["epsilon_at_least"],
                                 self.cost(self.path("plain.ledger")))
                self.assertNotIn("sed -i", text)
                self.assertIn("Release nothing more", text)

    def test_lines_of_runs_on_copies_count_and_are_not_deleted(self):
        rng = random.Random(7)
        for case in range(COPIES_CASES):
            with self.subTest(case=case):
                copies, releases = random_copies(rng, self.lines[0])
                merged = merge(rng, copies)
                one = Chain(self.lines[0])
                one.reserve("f" * 32, releases, 0)
                least = self.cost(self.write(*one.lines))
                path = self.write(*merged)
                if len(copies) == 1:
                    continue
                found, text = self.inspect(1, path)
                self.assertEqual(found["lines_counted"], len(set(merged)))
                self.assertEqual(found["copies"], len(copies))
                self.assertEqual(found["stray_lines"], 0)
                self.assertEqual(found["answers"][0]["epsilon_at_least"], least)
                self.assertIn("none may be deleted", text)
                self.assertNotIn("sed -i", text)
                self.refuse(1, "other.ledger:", "spent", *DELTA, "--ledger", path)

    def test_what_cannot_be_shown_is_escaped(self):
        path = self.write(*self.lines[:5], b"\x1b[31m\xff\x00red\n", *self.lines[5:])
        found, text = self.inspect(1, path)
        self.assertEqual(found["wrong_line"]["text"], "\\x1b[31m\\xff\\x00red")
        self.assertIn("\\x1b[31m\\xff\\x00red\n", text)
        self.assertTrue(all(line.isprintable() for line in text.splitlines()))
        found, _ = self.inspect(1, self.write(*self.lines[:5], b"x" * 100000 + b"\n"))
        self.assertTrue(found["wrong_line"]["text"].endswith("... (100000 bytes)"))
        self.assertLess(len(found["wrong_line"]["text"]), 300)

    def test_a_last_line_that_is_wrong_may_have_been_a_release_and_is_not_taken_out(self):
        for last in (b"stray\n", b"stray", self.lines[1]):
            found, text = self.inspect(1, self.write(*self.lines, last))
            self.assertEqual((found["right_lines"], found["stray_lines"]), (len(self.lines), 0))
            self.assertNotIn("sed -i", text)
            self.assertIn("Release nothing more", text)

    def test_two_damages_are_no_stray_line(self):
        found, _ = self.inspect(1, self.write(*self.lines[:3], b"\n", *self.lines[3:6],
                                              *self.lines[7:]))
        self.assertEqual((found["right_lines"], found["stray_lines"]), (3, 0))

    def test_a_line_that_broke_off_counts_for_nothing(self):
        found, text = self.inspect(0, self.write(*self.lines[:-1], self.lines[-1][:40]))
        self.assertEqual(found["right_lines"], len(self.lines) - 1)
        self.assertIn("broke off after 40 bytes", text)
        found, text = self.inspect(0, self.write(*self.lines[:-1], self.lines[-1][:-1]))
        self.assertEqual(found["right_lines"], len(self.lines))
        self.assertNotIn("broke off", text)

    def test_what_is_no_ledger_has_no_right_line_and_no_epsilon(self):
        for content, reason in ((b"", "no header"), (b"hello\nworld\n", "not an object"),
                                (b"".join(self.lines[1:]), "not a ledger"),
                                (os.urandom(5000), "")):
            with self.subTest(content=content[:20]):
                found, text = self.inspect(1, self.write(content))
                self.assertEqual(found["right_lines"], 0)
                self.assertIn(reason, found["wrong_line"]["reason"])
                self.assertNotIn("answers", found)
                self.assertNotIn("epsilon at least", text)

    def test_a_line_before_the_header_is_a_stray_one(self):
        found, _ = self.inspect(1, self.write(b"\xef\xbb\xbf\n", *self.lines))
        self.assertEqual((found["right_lines"], found["stray_lines"]), (0, 1))
        self.assertEqual(found["answers"][0]["epsilon_at_least"],
                         self.cost(self.path("plain.ledger")))

    def test_wrong_arguments_and_what_cannot_be_opened_have_a_status_of_their_own(self):
        os.mkfifo(self.path("fifo"))
        for fact, arguments in (("FILE", []), ("absent", [self.path("absent")]),
                                ("directory", [self.folder]), ("a FIFO", [self.path("fifo")]),
                                ("--delta", [self.path("plain.ledger"), "--delta", "2"]),
                                ("--relation", [self.path("plain.ledger"), "--relation", "none"]),
                                ("--epsilon", [self.path("plain.ledger"), "--epsilon", "1"]),
                                ("--report", [self.path("plain.ledger"), "--report", "page"])):
            with self.subTest(arguments=arguments):
                self.refuse(2, fact, "inspect", *arguments)


if __name__ == "__main__":
    main()
