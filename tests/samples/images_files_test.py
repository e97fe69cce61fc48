#!/usr/bin/env python3
"""Runs the sample `images` on folders with files that cannot be read, and links that lead back.

Usage: images_files_test.py PATH_OF_IMAGES [unittest options]
"""

import os
import unittest

from images_test import FEW, SIDE, InFolder
from programs import TrainingCase, take_programs


class Files(InFolder):
    def setUp(self):
        super().setUp()
        self.data, self.model = self.pictures(each=10), self.path("m.safetensors")
        self.train("--data", self.data, "--size", str(SIDE), "--no-privacy", "--steps", "1", "--batch-size", "10",
                   "--quiet", "--save", self.model)

    def test_unreadable_files_are_named_at_once_or_left_out(self):
        for name in ("across/x.jpg", "down/y.jpg"):
            self.write(b"GIF89a", "photos", *name.split("/"))
        os.makedirs(self.path("photos", "__MACOSX"))
        self.write(b"left by Windows", "photos", "down", "Thumbs.db")
        out, few = self.path("p.csv"), ["--size", str(SIDE), *FEW, "--steps", "1"]
        using = ["--model", self.model, "--data", self.data]
        both = "2 of 22 files cannot be read: .*across/x.jpg: .*a GIF picture.*down/y.jpg: "
        self.refused(both, "train", "--data", self.data, *few)
        self.refused(both, "evaluate", *using)
        self.refused(both, "predict", *using, "--out", out)
        self.assertRegex(self.train("--data", self.data, *few, "--skip-unreadable"), f"left out: {both}")
        for done in (self.call("evaluate", *using, "--skip-unreadable"),
                     self.call("predict", *using, "--out", out, "--skip-unreadable")):
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            self.assertRegex(done.stdout, f"left out: {both}.*\n(20 pictures|20 predictions)")
        with open(out, encoding="utf-8") as file:
            self.assertEqual(21, len(file.readlines()))
        self.refused("a GIF picture", "predict", "--model", self.model, "--data", self.path("photos", "down", "y.jpg"),
                     "--skip-unreadable", "--out", self.path("q.csv"))
        self.refused("--skip-unreadable: .*cifar is not a folder of PNG", "train", "--data", self.cifar(), *FEW,
                     "--skip-unreadable")
        self.refused("--skip-unreadable: needs --data", "train", *few, "--skip-unreadable")

    def test_links_that_lead_back_are_refused(self):
        out = ["--out", self.path("p.csv")]
        os.symlink(".", self.path("photos", "down", "back"))
        os.symlink("self", self.path("self"))
        for data, message in ((self.data, "back: a symbolic link that leads back"),
                              (self.path("self"), "self: Too many levels of symbolic links")):
            self.refused(message, "predict", "--model", self.model, "--data", data, *out)
            self.refused(message, "evaluate", "--model", self.model, "--data", data)
            self.refused(message, "train", "--data", data, *FEW)


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
