#!/bin/sh
# consumer.sh BUILD SOURCE WAY...: installs the library into a folder of its own and builds a separate project against it
# by pkg-config or by cmake, or compiles it with sotto as a subproject. A header of the project's own that has the name of
# one of ours is not taken for it.
set -eu

build=$1
source=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

meson install -C "$build" --no-rebuild --destdir "$work/root" --quiet
prefix=$(find "$work/root" -name sotto.pc -print | head -n 1)
[ -n "$prefix" ] || { echo "no sotto.pc was installed" >&2; exit 1; }
if find "$work/root" -path '*include/sotto*' ! -name '*.h' -type f | grep .; then
  echo "the files above were installed beside the headers" >&2
  exit 1
fi
for document in README.md copyright docs; do
  find "$work/root" -path "*/share/doc/sotto/$document" | grep -q . || {
    echo "no share/doc/sotto/$document was installed" >&2
    exit 1
  }
done

# Installed programs run from where they are, under names of ours.
for program in audit devices memory-profile memory-tour mnist privacy-budget; do
  installed=$(find "$work/root" -path "*/bin/sotto-$program")
  [ -n "$installed" ] || { echo "sotto-$program was not installed" >&2; exit 1; }
  LD_LIBRARY_PATH=$(dirname "$(dirname "$prefix")") "$installed" --help >"$work/help"
  grep -q . "$work/help"
done
if find "$work/root" -path '*/bin/*' ! -name 'sotto-*' | grep .; then
  echo "the programs above were installed under names that are not ours" >&2
  exit 1
fi

# project FOLDER: the separate project.
project() {
  cp -r "$source/tests/consumer" "$1"
  mkdir "$1/core"
  echo '#error "a header of the project was included"' >"$1/core/error.h"
}

libraries=$(dirname "$(dirname "$prefix")")

by_pkg_config() {
  project "$work/installed"
  PKG_CONFIG_PATH=$(dirname "$prefix") PKG_CONFIG_SYSROOT_DIR=$work/root \
    meson setup "$work/installed/build" "$work/installed" --wrap-mode nofallback
  ninja -C "$work/installed/build"
  LD_LIBRARY_PATH=$libraries "$work/installed/build/consumer"

  # Headers need fmt and nothing else: no other package's file is found here.
  mkdir "$work/alone"
  cp "$prefix" "$(pkg-config --variable=pcfiledir fmt)/fmt.pc" "$work/alone"
  flags=$(PKG_CONFIG_LIBDIR=$work/alone PKG_CONFIG_SYSROOT_DIR=$work/root pkg-config --cflags --libs sotto)
  # shellcheck disable=SC2086 # options
  c++ -std=c++20 -Wall -Wextra -Werror "$source/samples/first_program.cpp" -o "$work/example" $flags
  (cd "$work" && LD_LIBRARY_PATH=$libraries ./example)
}

# Wherever the package's folder lies.
by_cmake() {
  command -v cmake >/dev/null 2>&1 || return 0
  project "$work/cmake"
  cmake -G Ninja -S "$work/cmake" -B "$work/cmake/build" -Dsotto_DIR="$libraries/cmake/sotto"
  ninja -C "$work/cmake/build"
  LD_LIBRARY_PATH=$libraries "$work/cmake/build/consumer"
}

as_subproject() {
  project "$work/embedded"
  mkdir "$work/embedded/subprojects"
  ln -s "$source" "$work/embedded/subprojects/sotto"
  meson setup "$work/embedded/build" "$work/embedded" --force-fallback-for sotto
  ninja -C "$work/embedded/build" consumer.p/main.cpp.o
}

for way in "$@"; do
  case $way in
    pkg-config) by_pkg_config ;;
    cmake) by_cmake ;;
    subproject) as_subproject ;;
    *) echo "consumer.sh: no way is called $way" >&2 && exit 2 ;;
  esac
done
