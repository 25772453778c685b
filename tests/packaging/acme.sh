#!/usr/bin/env bash
# Builds a plugin outside the tree against the installed SDK: an axis in its own view, an auxiliary loss, a metric and a
# batch transform. Checks that the plugin trains as on one rank, and that each misuse is refused.
# Arguments: SOURCE MISUSES PREFIX.
. "$(dirname "$0")/common.sh"
source=$1 misuses=$2 prefix=$3
heddle=$prefix/bin/heddle
cd "$outside"

say "the model and the axis acme are unknown before the plugin is built"
export HEDDLE_PLUGIN_PATH=
# 4 ranks do not divide these sizes, and sequences are padded.
cat >run.yaml <<'YAML'
seed: 7
dataloader: {shuffle: false}
model:
  _target_: from_config
  config: {model_type: acme, vocab_size: 256, hidden_size: 30, intermediate_size: 46, num_hidden_layers: 4}
  dtype: float32
step_scheduler: {global_batch_size: 8, local_batch_size: 2, num_epochs: 1, max_steps: 8, ckpt_every_steps: null}
optimizer: {lr: 1.0e-2, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}
clip_grad_norm: {max_norm: 0.5}
dataset: {_target_: NanogptDataset, file_pattern: tokens.bin, seq_len: 13}
YAML
python3 -c 'print(" ".join(str(i * i % 97) for i in range(600)))' >text
"$heddle" data text --out tokens.bin
"$heddle" check run.yaml --distributed "{strategy: single}" >out 2>&1 && fail "the check accepts an unknown model"
expect "model_type 'acme' is not built" out
"$heddle" check run.yaml --only distributed --world-size 2 --distributed "{strategy: ddp, acme_size: 2}" >out 2>&1 &&
  fail "the check accepts an unknown axis"
expect "acme_size" out

say "builds it with find_package(HeddleSdk)"
cp -r "$source" acme
build "$outside/acme" "$prefix"
export HEDDLE_PLUGIN_PATH="$outside/build/plugins"
"$heddle" plugins check build/plugins/libheddle_acme.so >/dev/null
"$heddle" plugins inspect acme >out
expect "intermediate_size" out

# run NAME RANKS DISTRIBUTED [MORE...]: trains the recipe.
run() {
  local name=$1 ranks=$2 distributed=$3
  shift 3
  say "$name on $ranks rank(s): $distributed"
  "$heddle" train run.yaml --nproc-per-node "$ranks" --distributed "{$distributed}" \
    --checkpoint "{checkpoint_dir: out_$name}" --metrics "$name.jsonl" "$@" >"$name.out" 2>&1 ||
    { cat "$name.out" >&2; fail "$name does not train"; }
}
float32="mp_policy: {param_dtype: float32, reduce_dtype: float32}"
run single 1 "strategy: single"
run microbatches 1 "strategy: single" --step_scheduler.local_batch_size 1
run ddp 2 "strategy: ddp, acme_size: 2"
run ddp_folded 4 "strategy: ddp, acme_size: 2"
run fsdp2 2 "strategy: fsdp2, $float32, acme_size: 2"
run fsdp2_folded 4 "strategy: fsdp2, $float32, acme_size: 2" --step_scheduler.local_batch_size 1
run fsdp2_whole 4 "strategy: fsdp2, $float32, acme_size: 4"
run replicas 4 "strategy: fsdp2, $float32, dp_replicate_size: 2, acme_size: 4"
run recompute 2 "strategy: fsdp2, $float32, acme_size: 2, activation_checkpointing: full"
run pipeline 4 "strategy: fsdp2, $float32, pp_size: 2, acme_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}"
run megatron 2 "strategy: megatron_fsdp, acme_size: 2"

say "losses, norms, the auxiliary loss and the metric equal those of one rank"
python3 - single.jsonl microbatches.jsonl ddp*.jsonl fsdp2*.jsonl replicas.jsonl recompute.jsonl pipeline.jsonl megatron.jsonl <<'PY' ||
import json, sys
read = lambda file: [json.loads(line) for line in open(file)]
single = read(sys.argv[1])
assert len(single) == 8 and single[0]["loss"] > 1.2 * single[-1]["loss"], "it learns"
assert any(line["grad_norm"] > 0.5 for line in single), "clipping acts"
for file in sys.argv[2:]:
    lines, worst = read(file), {}
    assert len(lines) == 8, file
    for one, line in zip(single, lines):
        for name, most in (("loss", 2e-5), ("grad_norm", 2e-4), ("acme/activation", 2e-4), ("acme/largest", 2e-4)):
            worst[name] = max(worst.get(name, 0), abs(line[name] / one[name] - 1))
            assert worst[name] <= most, (file, line["step"], name, line[name], one[name])
        # acme pads each of 8 sequences by three tokens. Without the axis, batches are unchanged.
        assert line.get("acme/padded") == (None if file == "microbatches.jsonl" else 24), (file, line)
    print(file, {name: f"{value:.1e}" for name, value in worst.items()})
PY
  fail "a run differs from that of one rank"

say "the parameters equal those of one rank"
python3 - out_*/LATEST/model/consolidated <<'PY' || fail "parameters differ"
import json, pathlib, struct, sys
def read(place):
    tensors = {}
    for file in pathlib.Path(place).glob("*.safetensors"):
        data = file.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
    return tensors
single = read("out_single/LATEST/model/consolidated")
assert len(sys.argv) == 12 and len(single) == 4 * 3 + 3
for place in sys.argv[1:]:
    tensors = read(place)
    assert tensors.keys() == single.keys(), place
    for name, values in single.items():
        worst = max(abs(a - b) for a, b in zip(values, tensors[name], strict=True))
        assert worst < 2e-4, (place, name, worst)
PY

# refused TEXT RANKS DISTRIBUTED [MORE...]: checks that the run is refused with TEXT before the first step.
refused() {
  local text=$1 ranks=$2 distributed=$3
  shift 3
  say "refused: $distributed"
  "$heddle" train run.yaml --nproc-per-node "$ranks" --distributed "{$distributed}" --checkpoint "{checkpoint_dir: out_no}" \
    "$@" >out 2>&1 && fail "the run is not refused"
  expect "$text" out
}
say "mistakes in a recipe are refused"
refused "acme_size" 4 "strategy: ddp, acme_size: 3"
refused "the model has no layer named up_proj or down_proj, and acme splits no other" 2 "strategy: ddp, acme_size: 2" \
  --model "{_target_: from_config, config: {model_type: acme, vocab_size: 256, num_hidden_layers: 0}, dtype: float32}"

say "mistakes of a plugin are refused"
cp -r "$misuses" misuses
build "$outside/misuses" "$prefix" build_misuses
export HEDDLE_PLUGIN_PATH="$outside/build/plugins:$outside/build_misuses/plugins"
two() { refused "$1" 2 "strategy: ddp, $2"; }
two "the parallelizer 'no_view' places the parameter 'embed_tokens.weight': the axis 'elsewhere' is in no view of this mesh" \
  "no_view_size: 2"
two "the parallelizer 'two_views' places the parameter 'embed_tokens.weight': the axes two_views, dp are in no common view of this mesh" \
  "two_views_size: 2"
two "'misuses' changed the batch's labels in place, which belong to the data" "in_place_size: 2"
two "'misuses' left 1 rows of the batch's tokens, which has 2" "fewer_rows_size: 2"
two "side output 'misuse/other': the run was built without it" "undeclared_size: 2"
two "a value of 2 elements, and 1 are declared" "wide_size: 2"
