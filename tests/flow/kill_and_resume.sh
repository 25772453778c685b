#!/usr/bin/env bash
# Kills a run that saves after every step with SIGKILL at random moments, resumes it each time, and compares what
# it ends with to a run that nobody disturbed: tests/flow/kill_and_resume.sh [KILLS [BUILD]]
set -euo pipefail
kills=${1:-20} build=$(realpath "${2:-$(dirname "$0")/../../build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1

for line in $(seq 400); do echo "warp weft shed reed loom $line heald beam"; done >text.txt
"$build/heddle" data text.txt --out train.bin >/dev/null
cat >run.yaml <<YAML
seed: 7
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: $((kills * 4)), num_epochs: null, ckpt_every_steps: 1}
model:
  config: {model_type: llama, vocab_size: 256, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2,
           num_attention_heads: 3, num_key_value_heads: 1, max_position_embeddings: 32}
  dtype: float32
dataset: {file_pattern: $work/train.bin, seq_len: 16}
distributed: {strategy: fsdp2}
YAML
train() { "$build/heddle" train run.yaml --nproc-per-node 2 --checkpoint.checkpoint_dir "$1"; }

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

train whole >whole.out 2>&1 || fail "the undisturbed run: $(tail -3 whole.out)"
mkdir cut
killed=0
while [ "$killed" -lt "$kills" ]; do
  before=$(find cut -maxdepth 1 -name 'epoch_*_step_*[0-9]' 2>/dev/null | wc -l)
  setsid "$build/heddle" train run.yaml --nproc-per-node 2 --checkpoint.checkpoint_dir cut >cut.out 2>&1 &
  run=$!
  sleep "$((RANDOM % 2)).$(printf %03d $((RANDOM % 1000)))"
  kill -9 -- "-$run" 2>/dev/null && killed=$((killed + 1))
  status=0
  wait "$run" 2>/dev/null || status=$?
  [ "$status" -eq 137 ] || [ "$status" -eq 0 ] || fail "it did not resume: $(tail -3 cut.out)"
  after=$(find cut -maxdepth 1 -name 'epoch_*_step_*[0-9]' 2>/dev/null | wc -l)
  [ "$after" -ge "$before" ] || fail "a checkpoint was lost"
  [ "$status" -ne 0 ] || break # it came to its end
done
train cut >cut.out 2>&1 || fail "the last run: $(tail -3 cut.out)"

# The manifests hold the checksums of every tensor.
for part in model optim; do
  cmp "$(echo whole/*_step_$((kills * 4 - 1)))/$part/manifest.json" \
    "$(echo cut/*_step_$((kills * 4 - 1)))/$part/manifest.json" || fail "$part differs"
done
without_clock() { sed -E 's/"(timestamp|mem|tps|tps_per_gpu|step_time)":("[^"]*"|[^,}]*)//g' "$1"; }
cmp <(without_clock whole/training.jsonl) <(without_clock cut/training.jsonl) || fail "the metrics differ"
echo "$killed kills: no checkpoint lost, the same bits at the end"
