#!/bin/sh
# malformed_test.sh RUNNER CASES: tests the messages and the exit status of the runner for wrong cases.
set -eu
runner=$1
cases=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
total=$(find "$cases" -name '*.json' | wc -l)
others=$((total - 1))

# expect STATUS TEXT ARGUMENTS...: the runner's exit status and a text it prints.
expect() {
  wanted=$1
  text=$2
  shift 2
  status=0
  "$runner" "$@" >"$work/out" 2>&1 || status=$?
  if [ "$status" -ne "$wanted" ] || ! grep -qF -- "$text" "$work/out"; then
    echo "exit status $status where $wanted is expected, with \"$text\", from: $*"
    sed 's/^/    /' "$work/out"
    bad=1
  fi
}

# A copy of all cases in which sed has changed one file.
change() {
  rm -rf "$work/cases"
  cp -r "$cases" "$work/cases"
  sed -i "$2" "$work/cases/$1"
  if cmp -s "$cases/$1" "$work/cases/$1"; then
    echo "nothing changed in $1: $2"
    bad=1
  fi
}

# malformed FILE SED TEXT: the case is named, the others still run.
malformed() {
  change "$1" "$2"
  expect 2 "FAILED $(dirname "$1")/$(basename "$1" .json)" "$work/cases"
  for text in malformed: "$3" "$others passed, 1 failed, 0 skipped"; do
    if ! grep -qF -- "$text" "$work/out"; then
      echo "not said of $1 after $2: $text"
      sed 's/^/    /' "$work/out"
      bad=1
    fi
  done
}

expect 0 "$total passed, 0 failed, 0 skipped" "$cases"
expect 0 "1 passed, 0 failed, 0 skipped" "$cases" --kind op --case own_mul_broadcast --f32

malformed layer/own_linear.json '1s/{/[/' 'parse error'
malformed layer/own_linear.json 's/own_linear.safetensors/none.safetensors/' 'none.safetensors'
malformed layer/own_linear.json 's/"name": "param.bias"/"name": "param.other"/' 'tensor param.other: not in the tensor file'
malformed layer/own_linear.json '/"name": "grad_out.y"/s/grad_out/grad_in/' 'tensor grad_in.y'
malformed layer/own_linear.json 's/"dtype": "F32"/"dtype": "I64"/' 'tensor in.x: a tensor of role input is i64'
malformed layer/own_linear.json 's/"dtype": "F64"/"dtype": "F16"/' 'unknown dtype F16'
malformed layer/own_linear.json 's/"role": "param"/"role": "extra"/' 'unknown role extra'
malformed layer/own_linear.json 's/"batch_dim": 0/"batch_dim": 2/' 'batch_dim 2 of shape (3, 4)'
malformed layer/own_linear.json 's/"tol"/"loose"/' 'no field tol'
malformed layer/own_linear.json 's/"type": "Linear"/"type": "Linaer"/' 'type Linaer is not in the vocabulary'
malformed layer/own_linear.json 's/"format": 1/"format": 2/' 'format is not 1'
malformed layer/own_linear.json 's/"kind": "layer"/"kind": "lawyer"/' 'kind is lawyer'
malformed layer/own_conv2d.json 's/"groups"/"grapes"/' 'Conv2d: no field groups'
malformed layer/own_conv2d.json 's/"zeros"/"ones"/' 'padding_mode is ones'
malformed layer/own_tied_weight.json 's/"b": "wt"/"b": "tw"/' 'program: no value tw'
malformed op/own_mul_broadcast.json 's/"in.b"/"in.x"/' 'tensor in.x: not in the tensor file'
malformed dp_step/own_mlp_users.json 's/"rule": "min"/"rule": "max"/' 'rule is max'
malformed dp_step/own_mlp_users.json 's/"units": 4/"units": 3/' "a row's unit is out of range"
malformed optim/own_sgd.json 's/"dampening"/"damping"/' 'no field dampening'
malformed optim/own_sgd.json 's/"exponential"/"explosive"/' 'schedule explosive is not in the vocabulary'

# A row of a table is named by its id.
change accountant/own_rdp.json 's/"query": "epsilon"/"query": "omega"/'
expect 2 'FAILED accountant/own_full_batch (own_rdp): malformed: query is omega' "$work/cases"

# A truncated tensor file.
rm -rf "$work/cases"
cp -r "$cases" "$work/cases"
dd if="$cases/layer/own_linear.safetensors" of="$work/cases/layer/own_linear.safetensors" bs=1 \
  count=200 2>/dev/null
expect 2 "$others passed, 1 failed, 0 skipped" "$work/cases"

# Wrong numbers in a well-formed case.
change optim/own_sgd.json 's/"momentum": 0.9/"momentum": 0.8/'
expect 1 'FAILED optim/own_sgd (SGD): f' "$work/cases"
expect 1 "$others passed, 1 failed, 0 skipped" "$work/cases"
change dp_step/own_mlp_users.json 's/"max_norm": 0.4/"max_norm": 0.41/'
expect 1 'FAILED dp_step/own_mlp_users' "$work/cases"
change accountant/own_rdp.json 's/"sigma": 3.0/"sigma": 3.001/'
expect 1 'FAILED accountant/own_full_batch' "$work/cases"

# An expected tensor that a run does not compute.
change layer/own_linear.json 's/expect.norm_sq/expect.norm_xx/'
LC_ALL=C sed -i 's/expect.norm_sq/expect.norm_xx/' "$work/cases/layer/own_linear.safetensors"
expect 1 'norm_xx: expected and not computed' "$work/cases"

# A case that the library does not support is skipped, with its name.
change accountant/own_rdp.json 's/"rdp"/"gdp"/; s/"query": "epsilon"/"query": "sigma"/; s/"relation": "[^"]*"/"sampling": "poisson"/'
expect 0 'skipped, the central limit is not calibrated: accountant/own_full_batch' "$work/cases"
expect 0 "$others passed, 0 failed, 1 skipped" "$work/cases"

# Usage.
expect 2 'required' --f32
expect 2 'engine' "$cases" --engine abacus
expect 2 'No such file or directory' "$work/nowhere"
mkdir "$work/empty"
expect 2 'no cases' "$work/empty"

exit $bad
