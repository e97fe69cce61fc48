#!/bin/sh
# Everything that wants a GPU, in one call on a machine that has one and perhaps little else: builds
# with the GPU part, runs the tests of devices, which go over every device there is, the CPU among
# them, and the conformance cases on both, times kernels and steps, beside PyTorch's and Opacus' where
# Python can import these, and runs compute-sanitizer on the operations and on private training. Needs
# a C++ compiler, nvcc, Meson and ninja.
#
# usage: gpu.sh [RESULTS]     a folder for results.json, results.md and the logs; gpu-results if left out
#
# A call takes up to SOTTO_SECONDS (600) and may be repeated: what passed for the same commit is not done again, what
# failed or found no time is. With SOTTO_BUILD, a folder that was built before, nothing is built.
#
# SOTTO_DEPS names a folder brought along with include/ (Eigen, fmt, Catch2, nlohmann, CLI11, zlib, csv, libpng,
# libjpeg) and lib/pkgconfig/ for what the machine lacks; gpu_deps.sh makes one. nvcc, cuBLAS and the rest are also looked
# for in Python's packages (nvidia-*). Results are written after every step, so that those of a call that is stopped are
# there.
set -u

# refuse REASON: ends with the usage.
refuse() {
  echo "gpu.sh: $1" >&2
  sed -n 's/^# usage: /usage: /p' "$0" >&2
  exit 2
}

[ $# -le 1 ] || refuse "$# arguments"
case ${1:-} in -*) refuse "no option is called $1" ;; esac
case ${SOTTO_SECONDS:-600} in *[!0-9]* | '') refuse "SOTTO_SECONDS is no number: $SOTTO_SECONDS" ;; esac
[ -z "${SOTTO_BUILD:-}" ] || [ -d "$SOTTO_BUILD/tests" ] || refuse "SOTTO_BUILD was not built: $SOTTO_BUILD"

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
out=${1:-gpu-results}
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
build=${SOTTO_BUILD:-$root/build-gpu}
ends=$(($(date +%s) + ${SOTTO_SECONDS:-600}))
most=600
steps=$out/steps.txt
# Results of other sources, or of another build, are not this one's.
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
sources="$commit $(git -C "$root" diff HEAD 2>/dev/null | cksum) $root $build"
[ "$(cat "$out/commit.txt" 2>/dev/null)" = "$sources" ] || : >"$steps"
echo "$sources" >"$out/commit.txt"

# left: the seconds that are left, at least 1.
left() {
  seconds=$((ends - $(date +%s)))
  [ "$seconds" -gt 1 ] && echo "$seconds" || echo 1
}

# step NAME COMMAND...: runs it within the time left, $most seconds at most, with a log of its own, and
# writes the results.
step() {
  name=$1
  shift
  grep -q "^$name passed " "$steps" && return 0
  time=$(left)
  [ "$time" -le "$most" ] || time=$most
  if [ "$time" -le 1 ]; then
    status=skipped
    seconds=0
  else
    begin=$(date +%s)
    timeout "$time" "$@" >"$out/$name.log" 2>&1
    case $? in 0) status=passed ;; 124) status=stopped ;; *) status=failed ;; esac
    seconds=$(($(date +%s) - begin))
  fi
  { grep -v "^$name " "$steps"; echo "$name $status $seconds"; } >"$steps.new"
  mv "$steps.new" "$steps"
  echo "$name: $status, $seconds s"
  python3 "$root/tests/scripts/gpu_results.py" "$out" || true
  [ "$status" = passed ]
}

# build_step NAME COMMAND...: a step, unless all was built before.
build_step() {
  [ -n "${SOTTO_BUILD:-}" ] || step "$@"
}

# python_packages: folders of Python's nvidia packages, if there are any.
python_packages() {
  python3 - <<'EOF'
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
for place in (spec.submodule_search_locations if spec else []):
    for folder in sorted(pathlib.Path(place).iterdir()):
        if (folder / "include").is_dir() or (folder / "lib").is_dir() or (folder / "bin").is_dir():
            print(folder)
EOF
}

# prepend NAME FOLDER: puts the folder in front of a search path.
prepend() {
  eval "export $1=\"$2\${$1:+:\$$1}\""
}

find_tools() {
  for folder in $(python_packages) ${SOTTO_DEPS:-}; do
    [ -d "$folder/bin" ] && prepend PATH "$folder/bin"
    [ -d "$folder/include" ] && prepend CPATH "$folder/include"
    if [ -d "$folder/lib" ]; then
      prepend LIBRARY_PATH "$folder/lib"
      prepend LD_LIBRARY_PATH "$folder/lib"
      prepend PKG_CONFIG_PATH "$folder/lib/pkgconfig"
      # Packages hold libcudart.so.13 alone; the linker asks for libcudart.so.
      for library in "$folder"/lib/lib*.so.*; do
        plain=${library%%.so.*}.so
        [ -e "$library" ] && [ ! -e "$plain" ] && ln -s "$(basename "$library")" "$plain" 2>/dev/null
      done
    fi
  done
  [ -d /usr/local/cuda/bin ] && PATH=$PATH:/usr/local/cuda/bin
  export PATH
}

# target: what the first GPU is compiled for, as 90.
target() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. '
}

find_tools
{ nvidia-smi; nvcc --version; g++ --version; } >"$out/machine.log" 2>&1
gpu=$(target)
reconfigure=
[ -f "$build/build.ninja" ] && reconfigure=--reconfigure
# shellcheck disable=SC2086 # an option or none
build_step configure meson setup $reconfigure "$build" "$root" -Dbuildtype=release -Dtests=enabled \
  -Dsamples=auto -Dcuda=enabled "-Dgpu_targets=${gpu:-90}" || exit 1
units="devices kernels_on_host gpu_ops gpu_clip capture captured_gpu_clip captured_loss_failures captured_loss
fused_update masked_softmax conv gemm lstm pool reduce precision attention norm_methods large_arrays tf32 padded_batches
fused_attention"
# program UNIT: that of the folder of the unit's test.
tests=$(python3 "$root/tests/scripts/list_tests.py" "$root/tests") || exit 1
program() {
  echo "tests/test_$(echo "$tests" | sed -n "s/^$1 \([^ ]*\) [a-z]* here .*/\1/p")"
}
targets=libsotto_cuda.so
for unit in $units; do targets="$targets $(program "$unit")"; done
# shellcheck disable=SC2086 # a list
build_step build ninja -C "$build" $targets tests/benchmarks/bench_gpu || exit 1
step no_gpu env CUDA_VISIBLE_DEVICES= "$build/$(program devices)" '-#' '[#devices_test]'
for unit in $units; do step "$unit" "$build/$(program "$unit")" '-#' "[#${unit}_test]"; done
if build_step build_conformance ninja -C "$build" tests/conformance/conformance; then
  for device in cpu cuda:0; do
    for type in both f16 bf16; do
      step "conformance_${device}_$type" "$build/tests/conformance/conformance" "$root/tests/conformance/cases" \
        --device "$device" "--$type"
    done
  done
  step conformance_cuda_tf32 "$build/tests/conformance/conformance" "$root/tests/conformance/cases" --device cuda --tf32
fi
step bench "$build/tests/benchmarks/bench_gpu"
step bench_tf32 "$build/tests/benchmarks/bench_gpu" tf32
# Needs CLI11, which such a machine may lack.
if build_step build_networks ninja -C "$build" tests/benchmarks/bench_steps; then
  step networks_small "$build/tests/benchmarks/bench_steps" --device cuda --models mnist --batches 512 --modes ordinary,flat \
    --capture
  for case in gpt2-small:32 vit-b16:256 resnet50-224:256; do
    step "networks_${case%:*}" "$build/tests/benchmarks/bench_steps" --device cuda --models "${case%:*}" \
      --batches "${case#*:}" --modes ordinary,flat --precision bf16 --max-steps 10
  done
fi
step peers python3 "$root/tests/benchmarks/gpu_peers.py"
# The short case first: under the tools some take a hundred times as long.
most=120
for cases in "private training*" "every operation*"; do
  for tool in memcheck racecheck initcheck; do
    step "${tool}_${cases%% *}" compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$build/$(program gpu_ops)" "$cases"
  done
done
exit 0
