#!/usr/bin/env bash
# Packages the tree, moves it, and checks and trains with the LibTorch of HEDDLE_TORCH.
# Arguments: SOURCE BUILD TORCH DIST. Leaves a wheel and a Debian package in DIST.
. "$(dirname "$0")/common.sh"
source=$1 build=$2 torch=$3 dist=$4

say "packages the build"
DEBFULLNAME="A Maintainer" DEBEMAIL=a@example.org "$source/scripts/package" --build "$build" --out "$outside/here/heddle" --wheel $(! command -v dpkg-deb >/dev/null || echo --deb) | tee "$outside/out"
expect "MiB" "$outside/out"
rm -rf "$dist" && mkdir -p "$dist" "$outside/far away"
mv "$outside"/here/heddle[-_]* "$dist"
mv "$outside/here/heddle" "$outside/far away/heddle"
tree="$outside/far away/heddle"
bytes=$(du -sb "$tree" | cut -f1)
[ -s "$tree/share/doc/heddle/LICENSE" ] || fail "the tree has no LICENSE"
[ "$bytes" -le $((64 * 1024 * 1024)) ] || fail "the tree has $bytes bytes, more than 64 MiB"

say "the tree contains no path of this machine"
find "$tree" -type f \( -name '*.so*' -o -path '*/libexec/*' \) -print0 | xargs -0 -n 1 readelf -d >"$outside/dynamic"
grep -E 'RPATH|RUNPATH' "$outside/dynamic" >"$outside/paths"
grep -vE '\[\$ORIGIN[^]:]*(:\$ORIGIN[^]:]*)*\]' "$outside/paths" && fail "a run-time path leads outside of the tree"
grep -F NEEDED "$outside/dynamic" | grep -F '[/' && fail "a library is needed by an absolute path"
for library in libyaml-cpp libspdlog libfmt libboost_filesystem; do
  if ldd "$build"/libheddle*.so | grep -qF "$library"; then
    ls "$tree"/lib/$library.so* >/dev/null || fail "$library is not in the tree"
  fi
done

# Runs a command in an environment without the build's variables and without a LibTorch in HOME.
elsewhere() { env -i PATH=/usr/bin:/bin HOME="$outside" OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= "$@"; }
cd "$outside"
say "--version needs no LibTorch, and other commands report a missing or old LibTorch"
elsewhere "$tree/bin/heddle" --version | grep -qF "heddle " || fail "--version prints no version"
elsewhere HEDDLE_TORCH=/no/torch "$tree/bin/heddle" check x.yaml >"$outside/out" 2>&1 && fail "the check runs without LibTorch"
expect "error[usage] HEDDLE_TORCH: '/no/torch' contains no lib/libtorch_cpu.so" "$outside/out"
mkdir -p old/lib && touch old/lib/libtorch_cpu.so && echo "__version__ = '2.10.0+cpu'" >old/version.py
elsewhere HEDDLE_TORCH="$outside/old" "$tree/bin/heddle" check x.yaml >"$outside/out" 2>&1 && fail "the check runs with torch 2.10.0"
expect "is torch 2.10.0; 2.11.0 is needed" "$outside/out"

say "checks and trains two steps on two ranks"
heddle() { elsewhere HEDDLE_TORCH="$torch" "$tree/bin/heddle" "$@"; }
heddle plugins list | tee "$outside/out"
expect "searched: $tree/lib/plugins" "$outside/out"
heddle data "$tree/examples/fsdp2.yaml" --out train.bin
run=("$tree/examples/fsdp2.yaml" --dataset.file_pattern "$outside/train.bin" --dataset.seq_len 16
  --step_scheduler.max_steps 2 --lr_scheduler none --checkpoint.checkpoint_dir "$outside/run")
heddle check "${run[@]}" --world-size 2 >/dev/null
heddle train "${run[@]}" --nproc-per-node 2
[ "$(wc -l <"$outside/run/training.jsonl")" -eq 2 ] || fail "the run did not take two steps"

say "the test of a plugin that is built with the tree finds LibTorch without LD_LIBRARY_PATH"
heddle plugins new sink --kind metrics
(
  export HEDDLE_TORCH=$torch
  unset LD_LIBRARY_PATH
  build "$outside/sink" "$tree" sink_build
)
elsewhere "$(command -v "$CMAKE_COMMAND")" -E chdir "$outside/sink_build" "$(dirname "$(command -v "$CMAKE_COMMAND")")/ctest" --output-on-failure

say "the GPU tests report a missing GPU"
elsewhere HEDDLE_TORCH="$torch" "$tree/scripts/gpu_test" >"$outside/out" 2>&1 && fail "the GPU tests pass without a visible GPU"
if [ -e "$tree/lib/plugins/libheddle_nccl.so" ]; then
  expect "there is no GPU here" "$outside/out"
else
  expect "this build has no plugin nccl" "$outside/out"
fi

say "the GPU trial runs on simulated GPUs"
elsewhere HEDDLE_TORCH="$torch" "$tree/scripts/gpu_trial" --backend simulated --only llama_odd >"$outside/out" 2>&1 ||
  fail "gpu_trial failed on simulated GPUs"
cat "$outside/out"
grep -q "^ok .*families: llama_odd" "$outside/out" || fail "gpu_trial did not run the family llama_odd"
grep -q "^failed" "$outside/out" && fail "an item of gpu_trial failed"
say "an optimizer is checked on simulated GPUs"
heddle plugins check "$tree/lib/plugins/libheddle_adamw.so" --device simulated --ranks 1,2 >"$outside/out" ||
  fail "plugins check failed"
expect "ok    models are trained on the device 'simulated'" "$outside/out"
expect "ok    optimizer 'AdamW' on 2 ranks: update(): does not depend on the split" "$outside/out"
