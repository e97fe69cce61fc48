#!/bin/sh
# Builds what gpu_slot.sh runs on a machine that has a GPU and little else, and packs it as FOLDER/bundle.tar.gz. Needs no
# GPU. What that machine lacks is found out here: the bundle holds every library but glibc's, libstdc++ and CUDA's.
#
# usage: gpu_bundle.sh FOLDER     one that git ignores, such as build-bundle
#
# SOTTO_BUILD       a folder in which all was built before
# SOTTO_GPU_TARGETS what is compiled for (90)
# SOTTO_OLDEST      symbol versions that the other machine has (GLIBC_2.35 GLIBCXX_3.4.30: Ubuntu 22.04's)
# SOTTO_SHARED      a folder with more conformance cases, to come along
# SOTTO_MNIST       a folder of MNIST's files, to come along for the part `train` (11 MB)
# Wheels in FOLDER/wheel come along, too: pip download --no-deps -d FOLDER/wheel opacus
set -eu

fail() {
  echo "gpu_bundle.sh: $1" >&2
  exit "${2:-1}"
}

case $#${1:-} in 1[!-]*) ;; *) sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2 ;; esac
[ -z "${SOTTO_BUILD:-}" ] || [ -d "$SOTTO_BUILD/tests" ] || fail "SOTTO_BUILD was not built: $SOTTO_BUILD" 2
[ -z "${SOTTO_MNIST:-}" ] || ls "$SOTTO_MNIST"/train-images*-ubyte* >/dev/null 2>&1 ||
  fail "SOTTO_MNIST has no train-images: $SOTTO_MNIST" 2
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=${SOTTO_BUILD:-$root/build-gpu}
# shellcheck source=tests/scripts/packages.sh
# shellcheck disable=SC1091
. "$root/tests/scripts/packages.sh"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# Cases that run again on a pretended GPU, and those whose arrays it has no memory for: "NAME PROGRAM FILTER", the longest first.
longest="attention fused_attention captured_loss captured_gpu_clip gpu_clip launch_failures large_arrays masked_softmax precision"
python3 "$root/tests/scripts/list_tests.py" "$root/tests" |
  awk -v longest=" $longest " '$4 == "fake_gpu" || $1 == "large_arrays" {
    sub("_fake_gpu", "", $1)
    print !index(longest, " " $1 " "), $1, "test_" $2, $5
  }' | sort -s -k 1,1 | cut -d ' ' -f 2- >"$stage/units.txt"
programs="tests/conformance/conformance tests/benchmarks/bench_gpu tests/benchmarks/bench_steps samples/sotto-mnist
$(sed 's/.* \(test_[^ ]*\) .*/tests\/\1/' "$stage/units.txt" | sort -u)"
# The library of kernels' times asks for CUPTI.
times=tests/benchmarks/libkernel_times.so
if [ -z "${SOTTO_BUILD:-}" ]; then
  # oneDNN asks for libraries of OpenCL, 40 MB.
  configure "$build" "$root" -Dtests=enabled -Dsamples=enabled -Donednn=disabled -Dmpi=disabled -Dcuda=enabled -Dcudnn=enabled \
    "-Dgpu_targets=${SOTTO_GPU_TARGETS:-90}"
  # shellcheck disable=SC2046,SC2086 # lists
  ninja -C "$build" libsotto_cuda.so $programs $(ninja -C "$build" -t targets all | sed -n "s|^\($times\):.*|\1|p")
fi

mkdir "$stage/lib" "$stage/bin"
for program in $programs; do strip -o "$stage/bin/${program##*/}" "$build/$program"; done
libraries=libsotto_cuda.so
if [ -e "$build/$times" ]; then
  libraries="$libraries $times"
else
  echo "gpu_bundle.sh: there is no CUPTI here, so the part profile will be skipped" >&2
fi
for library in $libraries; do strip -o "$stage/lib/${library##*/}" "$build/$library"; done
# Libraries, and what these ask for.
there='^(ld-linux|libc|libm|libdl|libpthread|librt|libutil|libstdc\+\+|libgcc_s|libcud[a-z_]*|libcublas[a-zA-Z]*|libcupti|libnv[a-zA-Z_]*)[.-]'
# shellcheck disable=SC2086 # a list
(cd "$build" && ldd $programs $libraries) | sed -n 's/^\t\([^ ]*\) => \(.*\)/\1 \2/p' | grep -vE "$there" | sort -u |
  while read -r name path _; do
    [ "$path" != not ] || fail "nothing here provides $name"
    (cd "$build" && strip -o "$stage/lib/$name" "$path")
  done
for oldest in ${SOTTO_OLDEST-GLIBC_2.35 GLIBCXX_3.4.30}; do
  newest=$(objdump -T "$stage"/bin/* "$stage"/lib/* | grep -o "${oldest%%_*}_[0-9.]*" | sort -uV | tail -1)
  [ "$(printf '%s\n' "$newest" "$oldest" | sort -V | tail -1)" = "$oldest" ] || fail "a program asks for $newest, newer than $oldest"
done
export LD_LIBRARY_PATH="$stage/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
while read -r unit program filter; do
  "$stage/bin/$program" -# --list-tests "$filter" | grep -q '^[1-9].* matching test case' || fail "$program has no case of $unit"
done <"$stage/units.txt"

cp -r "$root/tests/conformance/cases" "$root/tests/scripts/gpu_slot.sh" "$root/tests/scripts/gpu_results.py" \
  "$root"/tests/benchmarks/gpu_*.[pt]* "$root"/tests/benchmarks/peer*.py "$stage/"
[ -z "${SOTTO_SHARED:-}" ] || cp -rL "$SOTTO_SHARED/conformance" "$stage/shared"
[ ! -d "$1/wheel" ] || cp -r "$1/wheel" "$stage/"
[ -z "${SOTTO_MNIST:-}" ] || { mkdir "$stage/mnist" && cp -L "$SOTTO_MNIST"/*-ubyte* "$stage/mnist/"; }
{ git -C "$root" rev-parse HEAD || echo unknown; find "$stage" -type f | sort | xargs cat | cksum; } >"$stage/commit.txt"
mkdir -p "$1"
tar czf "$1/bundle.tar.gz" -C "$stage" .
ls -l "$1/bundle.tar.gz"
