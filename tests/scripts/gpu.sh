#!/bin/sh
# Tests and times this machine's GPU: makes the bundle (gpu_bundle.sh), unpacks it here, and runs all parts of it
# (gpu_slot.sh). Called again it does what the calls before did not. Results: build-gpu/results, with tables in results.md.
#
# usage: gpu.sh [SECONDS]     3600 if left out
#
# SOTTO_BUILD is a folder in which all was built before, in place of build-gpu; SOTTO_MNIST one of MNIST's files, to train on.
set -eu

fail() {
  echo "gpu.sh: $1" >&2
  exit "$2"
}

seconds=${1:-3600}
case $#$seconds in
  *[!0-9]* | [!01]* | ?0*) sed -n 's/^# usage: /usage: /p' "$0" >&2; fail "SECONDS is no number: $*" 2 ;;
esac
target=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
[ -n "$target" ] || fail "nvidia-smi finds no GPU on this machine" 1
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
to=${SOTTO_BUILD:-$root/build-gpu}
# This machine has what it was compiled with.
SOTTO_OLDEST='' SOTTO_GPU_TARGETS=$target sh "$root/tests/scripts/gpu_bundle.sh" "$to/bundle"
tar xzf "$to/bundle/bundle.tar.gz" -C "$to/bundle"
export RESULTS="$to/results" OUT="$to"
exec sh "$to/bundle/gpu_slot.sh" smoke tests sanitize bench small large profile peers precisions ${SOTTO_MNIST:+train} "$seconds"
