#!/usr/bin/env python3
"""Rehearses without a GPU what gpu_bundle.sh has packed for a machine that has one. The bundle is unpacked in a root that
has glibc, libstdc++, a shell, Python, and CUDA's libraries as Python's packages hold them, but nothing else of what is
installed here, and no network. There all programs start and find all libraries, each says that there is no GPU, a program
that hangs takes no other's time, and the archive of results tells so. Such a root takes root's rights or user namespaces:
without, the status is 77.

Usage: gpu_rehearsal.py FOLDER     that of gpu_bundle.sh
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time

TOOLS = """sh bash env timeout date cat mkdir mv cp rm touch tac tr tee head tail cut sort paste uname nproc ls cmp sleep dirname awk
sed grep xargs tar gzip ldd free""".split()
PLAIN = re.compile(r"(libc|libm|libdl|libpthread|librt|libutil|libstdc\+\+|libgcc_s)\.so")
# Python's packages, and the libraries in each.
WHEELS = {"cu13": "libcudart|libcublas|libnvrtc|libnvJitLink|libcupti", "cudnn": "libcudnn", "nccl": "libnccl"}
# Of our library once CUDA's are loaded, and of the peers.
NO_GPU = re.compile("no driver|no PyTorch")
MAX_BYTES = 30e6  # of the archive without data
SECONDS, GRACE = 240, 25  # of a call; how much longer it may take
ISOLATED = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
HANGS = "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n"
# One that tells the clocks goes on for ever.
SMI = """#!/bin/sh\necho No devices were found\ncase "$*" in *' -l 1') exec sleep 1000 ;; esac\n"""
# Each of its options has a value.
SANITIZER = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift 2; done\nexec "$@"\n'


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def libraries(path, **environment):
    """{name: path} of what the loader finds for a file."""
    return dict(re.findall(r"(\S+) => (/\S+)", run("ldd", path, env=os.environ | environment).stdout))


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


class Root:
    def __init__(self, folder):
        self.folder = folder
        # (a file, where the root has it): too large to be copied, or no plain file.
        self.binds = [(f"/dev/{name}", folder / "dev" / name) for name in ("null", "urandom")]
        for name in ("usr/bin", "usr/lib", "usr/lib64", "tmp", "proc", "dev/shm"):
            (folder / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (folder / name).symlink_to(f"usr/{name}")
        self.copy("/lib64/ld-linux-x86-64.so.2")
        for tool in TOOLS:
            self.copy_program(tool, shutil.which(tool))
        program(folder / "usr/bin/compute-sanitizer", SANITIZER)
        program(folder / "usr/bin/nvidia-smi", SMI)
        self.make_python()

    def copy(self, path):
        target = self.folder / path[1:]
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)

    def copy_program(self, name, path):
        shutil.copy(os.path.realpath(path), self.folder / "usr/bin" / name)
        for library in libraries(path).values():
            self.copy(library)

    def make_python(self):
        """A virtual environment whose packages hold CUDA's libraries."""
        modules = sysconfig.get_path("stdlib")
        shutil.copytree(modules, self.folder / modules[1:], ignore=shutil.ignore_patterns("site-packages", "test", "__pycache__"))
        self.copy_program("python3", os.path.realpath(sys.executable))
        venv = self.folder / "opt/venv"
        packages = venv / "lib" / pathlib.Path(modules).name / "site-packages/nvidia"
        (venv / "bin").mkdir(parents=True)
        (venv / "bin/python3").symlink_to("/usr/bin/python3")
        (venv / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
        known = dict(reversed(re.findall(r"(lib\S+\.so\.\d+) .* => (/\S+)", run("ldconfig", "-p").stdout)))
        for wheel, names in WHEELS.items():
            (packages / wheel / "lib").mkdir(parents=True)
            self.binds += [(path, packages / wheel / "lib" / name) for name, path in known.items() if re.match(names, name)]

    def call(self, *command):
        """What a command prints in the root. A library that is named is loaded without a driver, too."""
        mounts = [f"mount --rbind /proc '{self.folder}/proc'", f"mount -t tmpfs none '{self.folder}/dev/shm'"]
        for source, target in self.binds:
            target.touch()
            mounts.append(f"mount --bind '{source}' '{target}'")
        enter = f"exec chroot '{self.folder}' env -i PATH=/opt/venv/bin:/usr/bin SOTTO_CUDA_LIBRARY=/tmp/b/lib/libsotto_cuda.so"
        done = run(*ISOLATED, "sh", "-ec", "\n".join([*mounts, enter + ' "$@"']), "sh", *command, stdin=subprocess.DEVNULL)
        return done.stdout + done.stderr


class Rehearsal:
    def __init__(self, archive, folder):
        self.failures = 0
        self.root, self.bundle, self.results = Root(folder), folder / "tmp/b", folder / "tmp/slot"
        with tarfile.open(archive) as packed:
            packed.extractall(self.bundle)
        data = sum(file.stat().st_size for file in self.bundle.glob("mnist/*"))
        size = archive.stat().st_size
        self.expect(size - data <= MAX_BYTES, f"the archive has {size} bytes, {data} of them data")
        for file in [*(self.bundle / "bin").iterdir(), *(source for source, _ in self.root.binds)]:
            for name, path in libraries(file, LD_LIBRARY_PATH=str(self.bundle / "lib")).items():
                if PLAIN.match(name):
                    self.root.copy(path)

    def expect(self, true, what):
        if not true:
            self.failures += 1
            print(f"FAILED: {what}")

    def slot(self, seconds, *parts):
        """(status of each step, text of each log, what was printed) of the first call on a machine."""
        shutil.rmtree(self.results, ignore_errors=True)
        begin = time.monotonic()
        printed = self.root.call("sh", "/tmp/b/gpu_slot.sh", *parts, str(seconds))
        took = time.monotonic() - begin
        self.expect(took <= seconds + GRACE, f"{' '.join(parts)} took {took:.0f} s of {seconds}")
        with tarfile.open(self.root.folder / "tmp/slot.tar.gz") as archive:
            texts = {file.name[2:]: archive.extractfile(file).read().decode(errors="replace") for file in archive if file.isfile()}
        return dict(line.split()[:2] for line in texts["steps.txt"].splitlines()), texts, printed

    def smoke(self):
        """Ends everything where no GPU is used."""
        statuses, texts, printed = self.slot(90, "smoke", "tests")
        self.expect(statuses == {"libraries": "passed", "devices": "passed", "gpu_is_used": "failed(2)"}, f"smoke: {statuses}")
        self.expect("no GPU is used: nothing else is done" in printed, f"smoke says: {printed}")
        self.expect(NO_GPU.search(texts["gpu_is_used.log"]), f"conformance says: {texts['gpu_is_used.log']}")

    def missing_library(self):
        """A bundle without a library that it needs is found out: this root does not have it."""
        [library] = (self.bundle / "lib").glob("libfmt.so.*")
        library.rename(self.bundle / "away")
        statuses, texts, _ = self.slot(90, "smoke")
        self.expect(statuses["libraries"] == "failed(1)", f"smoke without {library.name}: {statuses}")
        self.expect(f"{library.name} => not found" in texts["libraries.log"], f"{library.name} is not missed")
        (self.bundle / "away").rename(library)

    def all_parts(self):
        """Unit tests skip what needs a GPU; all else fails for want of one."""
        units = self.bundle / "units.txt"
        tests = [line.split()[0] for line in units.read_text().splitlines()]
        program(self.bundle / "bin/hangs", HANGS)
        units.write_text("hangs hangs forever\n" + units.read_text())
        statuses, texts, printed = self.slot(SECONDS, "tests", "sanitize", "bench", "small", "large", "profile", "peers",
                                             "precisions")
        self.expect(statuses.pop("hangs") == "stopped" and "hangs stopped" in printed, "no word of the program that hangs")
        self.expect(set(tests) <= set(statuses), f"steps: {statuses}")
        for name, status in statuses.items():
            if name in tests or name.startswith(("memcheck", "racecheck")):
                self.expect(status == "passed", f"{name}: {status}")
            else:
                self.expect(status != "stopped" and NO_GPU.search(texts.get(f"{name}.log", "")), f"{name}: {status}")
        print("steps:", dict(collections.Counter(statuses.values())))


def main(folder):
    # Where ldconfig and chroot are.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if run(*ISOLATED, "true").returncode != 0:
        print("gpu_rehearsal.py: skipped: for want of root's rights or user namespaces")
        return 77
    archive = pathlib.Path(folder) / "bundle.tar.gz"
    if not archive.is_file() or not tarfile.is_tarfile(archive):
        sys.exit(f"gpu_rehearsal.py: {archive} is no archive that gpu_bundle.sh has packed")
    with tempfile.TemporaryDirectory() as place:
        rehearsal = Rehearsal(archive, pathlib.Path(place))
        rehearsal.smoke()
        rehearsal.missing_library()
        rehearsal.all_parts()
    return 1 if rehearsal.failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
