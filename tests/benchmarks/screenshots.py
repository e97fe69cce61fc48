#!/usr/bin/env python3
"""Takes the screenshots of a report that README.md shows, light and dark, with Debian's chromium: the page without its
statement, which is long.

usage: screenshots.py PAGE.html PREFIX        writes PREFIX_light.png and PREFIX_dark.png
"""
import pathlib
import subprocess
import sys
import tempfile

WIDTH, HEIGHT, SCALE = 860, 770, 0.9
EXCERPT = "<style>header + div + div + section { display: none } body { zoom: 0.8 }</style></head>"


def main(page, prefix):
    with tempfile.TemporaryDirectory() as folder:
        excerpt = pathlib.Path(folder, "page.html")
        excerpt.write_text(pathlib.Path(page).read_text(encoding="utf-8").replace("</head>", EXCERPT), encoding="utf-8")
        for scheme, name in enumerate(("dark", "light")):
            command = [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={SCALE}",
                f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={prefix}_{name}.png", excerpt.as_uri()
            ]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
