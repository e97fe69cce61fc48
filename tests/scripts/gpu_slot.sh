#!/bin/sh
# Runs what a bundle (gpu_bundle.sh) holds on a machine with a GPU, for SECONDS at most: each step has a time of its own,
# and what does not end in it is stopped. The results are one archive, written anew after each part. What passed before for
# the same bundle is not done again.
#
# usage: gpu_slot.sh PART... SECONDS
#
#   smoke       the machine, versions, whether the GPU is used; where it is not, nothing else is done
#   tests       unit tests, conformance cases: eight programs at once
#   sanitize    compute-sanitizer on private training and on noise
#   bench       kernels
#   small       steps of three networks in bf16, ordinary and private
#   large       of all in bf16, of some captured, too
#   profile     the time of each kernel in steps of four networks
#   peers       PyTorch's kernels, and its and Opacus' steps in bf16
#   precisions  steps of all networks in tf32 and f32
#   train       MNIST to epsilon 3, if its data came along
#
# RESULTS (/tmp/slot) is the folder of the logs, OUT (/tmp) that of slot.tar.gz. PYTHON (python3) has PyTorch.
set -u

refuse() {
  echo "gpu_slot.sh: $1" >&2
  sed -n 's/^# usage: /usage: /p' "$0" >&2
  exit 2
}

left() { echo $((SLOT_ENDS - $(date +%s))); }

# step CAP NAME COMMAND...: for CAP seconds, and what is left, at most; a line with status and seconds, and the reasons if
# it fails. The libraries of the bundle are not Python's.
step() {
  cap=$1 name=$2 log=$RESULTS/$2.log status=passed begin=$(date +%s)
  shift 2
  ! grep -qs "^$name passed " "$RESULTS/steps.txt" || return 0
  [ "$1" = "$PYTHON" ] || set -- env LD_LIBRARY_PATH="$libraries" TMPDIR="$scratch" "$@"
  [ "$(left)" -ge "$cap" ] || cap=$(left)
  if [ "$cap" -le 2 ]; then
    status=skipped
  else
    timeout -k 5 "$cap" "$@" >"$log" 2>&1 </dev/null
    code=$?
    # A filter that matches nothing is an error for newer versions of Catch2 alone.
    ! grep -q 'No test cases matched' "$log" || code=nothing
    case $code in 0) ;; 124 | 137) status=stopped ;; *) status="failed($code)" ;; esac
  fi
  echo "$name $status $(($(date +%s) - begin))" | tee -a "$RESULTS/steps.txt"
  case $status in failed*) grep -nE 'FAILED|[Ee]rror|CUDA|cuda|terminate|not found' "$log" | head -6 | cut -c1-200 ;; esac
  [ $status = passed ]
}

# without PART WHAT: is skipped.
without() {
  echo "$1 skipped 0" | tee -a "$RESULTS/steps.txt"
  echo "there is no $2"
}

# keep: the last line of each step; tables; the archive, which is whole at any time.
keep() {
  tac "$RESULTS/steps.txt" | awk '!seen[$1]++' | tac >"$RESULTS/steps.new" && mv "$RESULTS/steps.new" "$RESULTS/steps.txt"
  "$PYTHON" gpu_results.py "$RESULTS" >"$RESULTS/tables.log" 2>&1 || echo "no tables: $(tail -1 "$RESULTS/tables.log")"
  tar czf "$OUT/slot.tar.gz.new" -C "$RESULTS" . && mv "$OUT/slot.tar.gz.new" "$OUT/slot.tar.gz"
}

smoke() {
  # Libraries are read from a cold disk, side by side, while the machine is looked at.
  for folder in $(echo "$wheels" | tr : ' '); do
    cat "$folder"/libcublasLt.so* "$folder"/libcudnn*.so* "$folder"/libnvrtc*.so* >/dev/null 2>&1 &
  done
  {
    date; timeout 30 nvidia-smi; uname -a; cat /etc/os-release; nproc; free -g; ldd --version | head -1
    for tool in g++ nvcc git pkg-config meson ninja ncu compute-sanitizer; do command -v $tool || echo "no $tool"; done
    timeout 60 "$PYTHON" -c 'import torch; print("torch", torch.__version__, "cudnn", torch.backends.cudnn.version())'
  } >"$RESULTS/machine.log" 2>&1
  grep -E 'NVIDIA|^torch|^no ' "$RESULTS/machine.log"
  wait
  step 30 libraries sh -c "ldd lib/*.so* bin/*; ! ldd lib/*.so* bin/* | grep 'not found'"
  step 60 devices bin/test_core '-#' '[#devices_test]'
  # Unit tests pass without a GPU; conformance cases on one do not.
  step 90 gpu_is_used bin/conformance cases/op --device cuda:0 ||
    { tail -3 "$RESULTS/gpu_is_used.log"; echo "no GPU is used: nothing else is done"; return 1; }
}

# The longest first, as units.txt has them. A network's step is compared with its samples' own.
tests() {
  threads=$(($(nproc) / 8))
  {
    for model in gpt2-small wrn16; do
      echo "120 checked_$model bin/bench_steps --device cuda --models $model --batches 2 --check --min-steps 1 --seconds 0"
    done
    while read -r unit program filter; do echo "120 $unit bin/$program -# $filter"; done <units.txt
    for cases in cases shared; do
      for precision in both f16 bf16 tf32; do
        [ ! -d $cases ] || echo "120 conformance_${cases}_$precision bin/conformance $cases --device cuda:0 --$precision"
      done
    done
  } | OMP_WAIT_POLICY=passive OMP_NUM_THREADS=$((threads > 0 ? threads : 1)) xargs -P 8 -L 1 sh gpu_slot.sh step
}

sanitize() {
  command -v compute-sanitizer >/dev/null || { without sanitize compute-sanitizer; return; }
  for tool in memcheck racecheck; do
    step 90 "${tool}_private" compute-sanitizer --tool $tool --error-exitcode 1 bin/test_kernels_cuda 'private training*' &
  done
  step 90 memcheck_noise compute-sanitizer --tool memcheck --error-exitcode 1 bin/test_kernels_cuda '-#' '*noise*[#gpu_ops_test]' &
  wait
}

bench() {
  step 75 bench bin/bench_gpu
  step 30 bench_tf32 bin/bench_gpu tf32
}

# networks PATTERN [--capture]: the lines of gpu_cases.txt, "MODEL BATCH PRECISION PEERS OPTIONS", that match.
networks() {
  grep -v '^#' gpu_cases.txt | grep -E "$1" | while read -r model batch precision _ options; do
    # shellcheck disable=SC2086 # a list
    step 60 "networks_${model}_${batch}_$precision${2:+_captured}" bin/bench_steps --device cuda --models "$model" \
      --batches "$batch" --precision "$precision" --min-steps 20 --seconds 0 $options ${2:-}
  done
}

small() { networks '(mnist 512|wrn16 256|gpt2-1024 8) bf16 '; }

large() {
  networks ' bf16 '
  networks '(gpt2-1024 8|wrn16 256|resnet50-224 32) bf16 ' --capture
}

precisions() {
  networks 'gpt2-1024 8 '
  networks .
}

# Of ten steps and one before them; libkernel_times.so writes KERNEL_TIMES when the program ends.
profile() {
  [ -e lib/libkernel_times.so ] || { without profile libkernel_times.so; return; }
  for case in gpt2-small:32 vit-b16:64 resnet50-224:64 wrn16:256; do
    for mode in ordinary flat; do
      name=kernels_${case%:*}_$mode
      step 40 "$name" env CUDA_INJECTION64_PATH="$here/lib/libkernel_times.so" KERNEL_TIMES="$RESULTS/$name.tsv" bin/bench_steps \
        --device cuda --models "${case%:*}" --batches "${case#*:}" --precision bf16 --modes $mode --warmup 1 --min-steps 10 \
        --max-steps 10
    done
  done
}

# PyTorch's networks are timed if they compute what ours has written.
peers() {
  models=$(sed -n 's/^\([^# ][^ ]*\) .*/\1/p' gpu_cases.txt | sort -u | paste -sd ,)
  step 60 reference bin/bench_steps --device cuda --models "$models" --write "$RESULTS.reference"
  step 40 peers_kernels "$PYTHON" peers.py --kernels
  step 200 peers "$PYTHON" peers.py --reference "$RESULTS.reference" --models "$models" --precision bf16
}

train() {
  [ -d mnist ] || { without train mnist; return; }
  step 300 train bin/sotto-mnist --preset eps3 --data mnist --device cuda --cuda-graph
  tail -1 "$RESULTS/train.log"
}

# work PART...: each with the GPU's clocks from before to after, a line a second.
work() {
  while [ $# -gt 0 ]; do
    # No child of this shell, whose parts wait for theirs.
    clocks=$(nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv,noheader -l 1 \
      >>"$RESULTS/clocks_$1.csv" 2>/dev/null & echo $!)
    "$1" || [ "$1" != smoke ] || set -- smoke
    kill "$clocks" 2>/dev/null
    keep
    shift
  done
}

# Within a call: one of the functions and its arguments.
if [ -n "${SLOT_ENDS:-}" ]; then
  "$@"
  exit
fi

[ $# -ge 2 ] || refuse "a part and a number of seconds are wanted"
parts=
while [ $# -gt 1 ]; do
  case $1 in
    smoke | tests | sanitize | bench | small | large | profile | peers | precisions | train) parts="$parts $1" ;;
    *) refuse "no part is called $1" ;;
  esac
  shift
done
case $1 in *[!0-9]* | '' | 0*) refuse "SECONDS is no number: $1" ;; esac
# folder NAME: makes it, and says where it is.
folder() { mkdir -p "$1" && (cd "$1" && pwd); }
RESULTS=${RESULTS:-/tmp/slot} PYTHON=${PYTHON:-python3}
# Results of another bundle are not this one's.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
[ ! -e "$RESULTS/commit.txt" ] || cmp -s "$here/commit.txt" "$RESULTS/commit.txt" || mv "$RESULTS" "$RESULTS.$(date +%s)"
RESULTS=$(folder "$RESULTS") && OUT=$(folder "${OUT:-/tmp}") && cp "$here/commit.txt" "$RESULTS/" && cd "$here" || exit 2
touch "$RESULTS/steps.txt"
# The CUDA libraries of Python's packages stand in for the toolkit's; Opacus' wheel comes along, or does not.
wheels=$("$PYTHON" -c 'import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
places = [pathlib.Path(place) for place in (spec.submodule_search_locations if spec else [])]
print(":".join(str(lib) for place in places for lib in sorted(place.glob("*/lib"))))')
libraries=$here/lib:$wheels:/usr/local/cuda/lib64:/usr/local/cuda/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PYTHONPATH=$(echo "$here"/wheel/opacus-*.whl)${PYTHONPATH:+:$PYTHONPATH}
# Ledgers are written to memory: a disk's time is not a step's.
scratch=${TMPDIR:-/tmp}
[ ! -w /dev/shm ] || scratch=/dev/shm
export here wheels libraries scratch RESULTS OUT PYTHON PYTHONPATH PYTHONUNBUFFERED=1 PATH="$PATH:/usr/local/cuda/bin"
SLOT_ENDS=$(($(date +%s) + $1))
export SLOT_ENDS
# Also a program that cannot be killed lets this call end.
# shellcheck disable=SC2086 # a list
timeout -k 5 $(($1 + 8)) sh gpu_slot.sh work $parts &
trap 'kill $!' INT TERM
wait $! || echo "not all of$parts was done"
keep
# The tables behind those of the machine and of the steps.
awk -v RS= 'NR > 2 { print "\n" $0 }' "$RESULTS/results.md"
echo
grep -v ' passed ' "$RESULTS/steps.txt"
echo "$(grep -c ' passed ' "$RESULTS/steps.txt") passed, $(left) s left: $OUT/slot.tar.gz"
! grep -qv ' passed ' "$RESULTS/steps.txt"
