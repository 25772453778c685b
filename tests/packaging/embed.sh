#!/usr/bin/env bash
# Builds an external C++ program (find_package(Heddle), torch::nn model) and runs each strategy. Arguments: SOURCE PREFIX.
. "$(dirname "$0")/common.sh"
source=$1 prefix=$2
cp -r "$source" "$outside/embed"
say "builds the embedding program outside the tree"
build "$outside/embed" "$prefix"
say "builds the template's strategy"
(cd "$outside" && "$prefix/bin/heddle" plugins new hello >/dev/null)
build "$outside/hello" "$prefix" hello_build
export HEDDLE_PLUGIN_PATH="$outside/hello_build/plugins"
embed=$outside/build/embed
float32="{param_dtype: float32, reduce_dtype: float32}"
"$embed" "strategy: single" 1
for section in "strategy: ddp" "strategy: fsdp2, mp_policy: $float32" "strategy: megatron" \
  "strategy: megatron, use_distributed_optimizer: true" "strategy: megatron_fsdp" "strategy: hello"; do
  for ranks in 1 2 3; do
    say "$section on $ranks rank(s) compared with plain torch::nn"
    "$embed" "$section" "$ranks"
  done
done
for section in "strategy: single" "strategy: ddp" "strategy: fsdp2, mp_policy: $float32" "strategy: megatron" \
  "strategy: megatron_fsdp"; do
  for ranks in 1 2 3; do
    if [ "$section" = "strategy: single" ] && [ "$ranks" != 1 ]; then continue; fi
    say "$section on $ranks rank(s) with a forward that skips a layer"
    "$embed" "$section" "$ranks" own
  done
done
say "fsdp2 in bfloat16, its default: the loss is summed in float32"
"$embed" "strategy: fsdp2" 1 >"$outside/out" || true  # exceeds the tolerance of float32
grep -Eq 'largest difference: ([1-3][.][0-9]e-03|[1-9][.][0-9]e-0[45]) ' "$outside/out" || fail "$(cat "$outside/out")"
say "a missing LibTorch is refused"
"$CMAKE_COMMAND" -S "$outside/embed" -B "$outside/other" -DCMAKE_PREFIX_PATH="$prefix" -DHEDDLE_TORCH=/no/torch \
  >"$outside/out" 2>&1 && fail "CMake configures without LibTorch"
expect "No LibTorch in '/no/torch'" "$outside/out"
say "an unknown strategy is refused"
mkdir "$outside/room"
TMPDIR="$outside/room" "$embed" "strategy: fsdp7" 1 >"$outside/out" 2>&1 && fail "the program trains with an unknown strategy"
rmdir "$outside/room" || fail "the program leaves temporary files"
expect "error[plugin_missing] embed:1 distributed.strategy: Unknown strategy: fsdp7" "$outside/out"
