#!/bin/sh
# Makes a folder of what tests/scripts/gpu.sh needs besides compilers, from what is installed here, for a
# machine that has none of it: SOTTO_DEPS=FOLDER tests/scripts/gpu.sh.
#
# usage: gpu_deps.sh FOLDER     one that is not there yet
set -eu

[ $# -eq 1 ] || { sed -n '5p' "$0" >&2; exit 2; }
[ ! -e "$1" ] || { echo "gpu_deps.sh: $1 is there already" >&2; exit 2; }
mkdir -p "$1/include" "$1/lib/pkgconfig"
to=$(CDPATH='' cd -- "$1" && pwd)

# shared LIBRARY: the file, and a link by the name that the linker looks for.
shared() {
  [ -e "$1" ] || { echo "gpu_deps.sh: no $(basename "$1") here" >&2; exit 1; }
  real=$(readlink -f "$1")
  cp "$real" "$to/lib/"
  [ -e "$to/lib/$(basename "$1")" ] || ln -s "$(basename "$real")" "$to/lib/$(basename "$1")"
}

# module NAME: its headers, its libraries, and a file that says where they are.
module() {
  pkg-config --exists "$1" || { echo "gpu_deps.sh: no $1 here" >&2; exit 1; }
  for flag in $(pkg-config --libs-only-l "$1"); do
    for library in "$(pkg-config --variable=libdir "$1")/lib${flag#-l}".so*; do
      shared "$library"
    done
  done
  {
    echo "Name: $1"
    echo "Description: brought along"
    echo "Version: $(pkg-config --modversion "$1")"
    echo "Cflags: -I\${pcfiledir}/../../include"
    echo "Libs: -L\${pcfiledir}/../../lib $(pkg-config --libs-only-l "$1")"
  } >"$to/lib/pkgconfig/$1.pc"
}

for name in eigen3 fmt zlib libpng libjpeg nlohmann_json CLI11 catch2; do module "$name"; done
for library in "$(c++ -print-file-name=libcsv.so)"*; do shared "$library"; done
cp -r "$(pkg-config --variable=includedir eigen3 | grep . || echo /usr/include/eigen3)/Eigen" "$to/include/"
for header in fmt nlohmann CLI catch2 zlib.h zconf.h csv.h png.h pngconf.h pnglibconf.h jpeglib.h jconfig.h jmorecfg.h jerror.h; do
  for place in /usr/include /usr/include/*-linux-gnu; do
    [ ! -e "$place/$header" ] || { cp -rL "$place/$header" "$to/include/"; break; }
  done
  [ -e "$to/include/$header" ] || { echo "gpu_deps.sh: no header $header here" >&2; exit 1; }
done
du -sh "$to"
