#!/bin/sh
# From a fresh clone to a privately trained network: installs what is missing, builds the sample
# `sotto-mnist` and trains it on digits that the program draws itself. Arguments are passed on to it.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build
report=$build/mnist.html
# shellcheck source=tests/scripts/packages.sh
. "$root/tests/scripts/packages.sh"

install_missing "$build_packages"
echo "Building in $build"
configure "$build" "$root" -Dsamples=enabled
ninja -C "$build" samples/sotto-mnist

echo "Training"
"$build/samples/sotto-mnist" --preset quick --report "$report" "$@"
echo "The report is in $report"
