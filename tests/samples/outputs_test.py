#!/usr/bin/env python3
"""Runs the samples with outputs that are closed, full, not regular files, or files that must not be replaced.

Usage: outputs_test.py MNIST AUDIT MEMORY_PROFILE MEMORY_TOUR PRIVACY_BUDGET DEVICES [unittest options]
"""

import json
import os
import resource
import signal
import stat
import subprocess
import unittest

from programs import Case, run_program as run, take_programs

MNIST, AUDIT, MEMORY_PROFILE, TOUR, BUDGET, DEVICES = take_programs(6)
TRAIN = [MNIST, "--train-size", "200", "--test-size", "20", "--batch-size", "32", "--threads", "1",
         "--noise-multiplier", "2", "--steps", "2", "--quiet"]
# The command of each program that writes files, and its options that name a file.
WRITERS = [
    (TRAIN, ["--report", "--json"]),
    ([AUDIT, "--train-size", "40", "--batch-size", "8", "--steps", "1", "--canaries", "40", "--threads",
      "1", "--quiet"], ["--report", "--json"]),
    ([MEMORY_PROFILE, "--batch-size", "2", "--threads", "1"], ["--report", "--json"]),
    ([TOUR, "--width", "8", "--layers", "2", "--batch-size", "16"], ["--report", "--json"]),
    ([BUDGET, "spent", "--noise-multiplier", "4", "--sampling-rate", "1", "--steps", "2", "--delta", "1e-5"], ["--report"]),
]
OUTPUTS = [(command, option) for command, options in WRITERS for option in options]
# Commands that write no file, only text.
SPEAKERS = [command for command, _ in WRITERS] + [[DEVICES]] + [
    [program, "--help"] for program in (MNIST, AUDIT, MEMORY_PROFILE, TOUR, BUDGET)]


class Outputs(Case):
    def bytes_of(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def whole(self, option, text):
        """Checks that the file of an option is complete."""
        if option == "--json":
            json.loads(text)
        else:
            self.assertTrue(text.endswith(b"</html>\n"))


class StandardFiles(Outputs):
    def test_nothing_begins_when_standard_output_is_closed(self):
        for command in SPEAKERS:
            with self.subTest(command=command):
                self.told(run(command, [1]), 1, "standard output is closed")
        self.told(run([*TRAIN, "--save", self.path("m")], [1]), 1, "standard output is closed")
        self.assertEqual(os.listdir(self.folder), [])

    def test_text_that_finds_no_room_is_status_1(self):
        for command in SPEAKERS:
            with self.subTest(command=command), open("/dev/full", "wb") as full:
                self.told(run(command, stdout=full), 1, "standard output: No space left on device")

    def test_a_pipe_without_a_reader_is_no_death_by_signal(self):
        for command in SPEAKERS:
            with self.subTest(command=command):
                reading, writing = os.pipe()
                os.close(reading)
                done = run(command, stdout=writing)
                os.close(writing)
                self.assertIn(done.returncode, (1, 128 + signal.SIGPIPE), done)

    def test_errors_keep_their_status_when_standard_error_is_closed(self):
        for program in (MNIST, AUDIT, MEMORY_PROFILE, TOUR, BUDGET, DEVICES):
            with self.subTest(program=program):
                self.assertEqual(run([program, "--bogus"], [2]).returncode, 2)
                self.assertEqual(run([program, "--bogus"], [0, 1, 2]).returncode, 1)
        missing = run([*TRAIN, "--data", self.path("nowhere")], [0, 2])
        self.assertEqual(missing.returncode, 1)

    def test_a_training_and_its_ledger_are_sound_without_standard_input_and_error(self):
        for closed in ([0], [2], [0, 2]):
            with self.subTest(closed=closed):
                model = self.path(f"m{len(os.listdir(self.folder))}")
                done = run([*TRAIN, "--save", model], closed)
                self.assertEqual(done.returncode, 0, done)
                spent = run([BUDGET, "spent", "--ledger", model + ".ledger", "--delta", "1e-5",
                             "--json"])
                self.assertEqual(spent.returncode, 0, spent)
                self.assertEqual(run([*TRAIN[:1], "--resume", model, "--quiet"]).returncode, 0)

    def test_files_that_may_not_grow_are_an_error_in_one_line(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
        self.told(run([*TRAIN, "--save", self.path("m")], before=limit), 1, "File too large")
        for command, option in OUTPUTS:
            with self.subTest(program=os.path.basename(command[0]), option=option):
                output = self.path("output" + option)
                done = run([*command, option, output], before=limit)
                if done.returncode != 0:
                    self.told(done, 1, "File too large")
                    self.assertFalse(os.path.exists(output))
                else:
                    self.whole(option, self.bytes_of(output))


class Files(Outputs):
    def test_an_output_is_written_where_a_symbolic_link_leads(self):
        for command, option in OUTPUTS:
            with self.subTest(program=os.path.basename(command[0]), option=option):
                for name in ("real", "link"):
                    if os.path.lexists(self.path(name)):
                        os.remove(self.path(name))
                os.symlink("real", self.path("link"))
                self.assertEqual(run([*command, option, self.path("link")]).returncode, 0)
                self.assertTrue(os.path.islink(self.path("link")))
                self.whole(option, self.bytes_of("real"))

    def test_an_output_through_a_pipe_arrives_whole_and_the_text_too(self):
        for command, option in OUTPUTS:
            with self.subTest(program=os.path.basename(command[0]), option=option):
                reading, writing = os.pipe()
                with subprocess.Popen([*command, option, f"/dev/fd/{writing}"], pass_fds=[writing],
                                      stdout=subprocess.DEVNULL) as process:
                    os.close(writing)
                    with open(reading, "rb") as file:
                        text = file.read()
                self.assertEqual(process.returncode, 0)
                self.whole(option, text)

    def test_a_full_device_is_an_error_and_stays_a_device(self):
        for command, option in OUTPUTS:
            with self.subTest(program=os.path.basename(command[0]), option=option):
                done = run([*command, option, "/dev/full"])
                self.told(done, 1, "/dev/full: No space left on device")
                self.assertNotEqual(done.stdout, "")
                self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_what_cannot_be_written_is_refused_before_anything_is_done(self):
        os.mkfifo(self.path("fifo"))
        os.symlink("round", self.path("round"))
        for command, option in OUTPUTS:
            with self.subTest(program=os.path.basename(command[0]), option=option):
                for fact, name in (("a FIFO", "fifo"), ("symbolic links", "round"), ("folder", "."),
                                   ("no folder", "a/b"), ("File name too long", "x" * 250)):
                    done = run([*command, option, self.path(name)])
                    self.told(done, 2, fact)
                    self.told(done, 2, option)
                    self.assertEqual(done.stdout, "")
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("fifo")).st_mode))

    def test_no_output_replaces_a_ledger_or_a_checkpoint_of_whichever_run(self):
        self.assertEqual(run([*TRAIN, "--save", self.path("m")]).returncode, 0)
        os.rename(self.path("m"), self.path("notes.txt"))
        os.rename(self.path("m.ledger"), self.path("page.html"))
        os.symlink("page.html", self.path("link"))
        os.link(self.path("notes.txt"), self.path("hard"))
        before = {name: self.bytes_of(name) for name in os.listdir(self.folder)}
        for command, option in OUTPUTS:
            with self.subTest(program=os.path.basename(command[0]), option=option):
                for fact, name in (("checkpoint", "notes.txt"), ("ledger", "page.html"),
                                   ("ledger", "link"), ("checkpoint", "hard")):
                    done = run([*command, option, self.path(name)])
                    self.told(done, 2, f"is a {fact}")
                    self.assertEqual(done.stdout, "")
        self.assertEqual({name: self.bytes_of(name) for name in before}, before)

    def test_what_a_killed_run_left_half_written_goes_when_it_is_resumed(self):
        model = self.path("m")
        self.assertEqual(run([*TRAIN, "--save", model]).returncode, 0)
        dead = 2**31 - 1  # no process has this number
        others = [f"m.{os.getpid()}.0.tmp", f"n.{dead}.0.tmp"]
        kept = sorted([*os.listdir(self.folder), *others])
        for name in (*others, f"m.{dead}.0.tmp", f"m.statistics.json.{dead}.1.tmp"):
            with open(self.path(name), "a", encoding="utf-8"):
                pass
        self.assertEqual(run([MNIST, "--resume", model, "--quiet"]).returncode, 0)
        self.assertEqual(sorted(os.listdir(self.folder)), kept)

    def test_names_are_shown_in_one_line_without_what_a_terminal_obeys(self):
        for name, shown in ((b"a\x1b[31m\n", r"a\x1b[31m\x0a"),
                            (b"\xff\xc2\x9b\xe2\x82", r"\xff\xc2\x9b\xe2\x82"),
                            ("ä€\U0001f512".encode(), "ä€\U0001f512")):
            done = run([*TRAIN, "--report", os.path.join(self.folder.encode(), name, b"x")])
            self.told(done, 2, shown)

    def test_what_a_ledger_and_its_name_say_is_shown_without_what_a_terminal_obeys(self):
        ledger = self.path("a\x1b[31m\nb.ledger")
        self.assertEqual(run([*TRAIN, "--save", ledger[:-len(".ledger")]]).returncode, 0)
        done = run([BUDGET, "spent", "--ledger", ledger, "--delta", "1e-5"])
        self.assertIn(r"a\x1b[31m\x0ab.ledger", done.stdout)
        self.assertNotIn("\x1b", done.stdout)

    def test_a_name_that_is_no_utf_8_works_in_json_and_on_pages(self):
        ledger = os.path.join(self.folder.encode(), b"\xff\n.ledger")
        self.assertEqual(run([*TRAIN, "--save", ledger[:-len(b".ledger")]]).returncode, 0)
        page = self.path("page")
        done = run([BUDGET, "spent", "--ledger", ledger, "--delta", "1e-5", "--json", "--report", page])
        self.assertEqual(done.returncode, 0, done)
        json.loads(done.stdout)
        with open(page, encoding="utf-8") as file:
            file.read()


if __name__ == "__main__":
    unittest.main()
