#!/usr/bin/env bash
# Builds a model family outside the tree against the installed SDK: GPT-2 trains like transformers
# (tests/golden/make_gpt2.py) under every kind of parallelism, and its exported files equal the original. A family that
# `plugins new --from-hf` starts with the keys of a Llama trains like heddle's Llama.
# Arguments: SOURCE GOLDEN PREFIX.
. "$(dirname "$0")/common.sh"
source=$1 golden=$2 prefix=$3
heddle=$prefix/bin/heddle
cd "$outside"

cat >run.yaml <<'YAML'
seed: 1
dataloader: {shuffle: false}
step_scheduler: {global_batch_size: 4, local_batch_size: 2, num_epochs: 1, max_steps: 12, ckpt_every_steps: null}
optimizer: {lr: 1.0e-3, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}
clip_grad_norm: {max_norm: 1.0}
YAML

# run NAME CASE RANKS DISTRIBUTED [MORE...]: trains 12 steps of a golden case and compares with transformers.
run() {
  local name=$1 case=$2 ranks=$3 distributed=$4
  shift 4
  say "$name: $case on $ranks rank(s), $distributed"
  "$heddle" train run.yaml --nproc-per-node "$ranks" --model "{pretrained_model_name_or_path: $golden/$case}" \
    --dataset "{file_pattern: $golden/$case/tokens.bin, seq_len: 17}" --distributed "{$distributed}" \
    --checkpoint "{checkpoint_dir: out_$name}" --metrics "$name.jsonl" "$@" >"$name.out" 2>&1 ||
    { cat "$name.out" >&2; fail "$name does not train"; }
  python3 - "$golden/$case/golden.json" "$name.jsonl" <<'PY' || fail "$name differs from transformers"
import json, sys
golden, lines = json.load(open(sys.argv[1])), [json.loads(line) for line in open(sys.argv[2])]
assert len(lines) == 12 == len(golden["loss"]), f"{len(lines)} steps"
loss = max(abs(line["loss"] / want - 1) for line, want in zip(lines, golden["loss"]))
norm = max(abs(line["grad_norm"] / want - 1) for line, want in zip(lines, golden["grad_norm"]))
print(f"loss differs by {loss:.1e}, norm by {norm:.1e}")
assert loss <= 2e-5 and norm <= 2e-4
assert all(line["tflops"] > 0 and line["mfu"] > 0 for line in lines)
PY
}

say "a model_type without a plugin is unknown"
export HEDDLE_PLUGIN_PATH=
cp -r "$golden/gpt2" unknown
sed -i 's/"model_type": "gpt2"/"model_type": "acme_gpt"/' unknown/config.json
"$heddle" convert unknown sharded >out 2>&1 && fail "convert accepts an unknown model_type"
expect "model_type 'acme_gpt' is not built; available: " out
expect ", step3p5 (searched $(realpath "$prefix")/lib/plugins)" out

say "builds it with find_package(HeddleSdk)"
cp -r "$source" model
build "$outside/model" "$prefix"
export HEDDLE_PLUGIN_PATH="$outside/build/plugins"
"$heddle" plugins check build/plugins/libheddle_gpt2.so --fields "{resid_pdrop: 0.0, embd_pdrop: 0.0, attn_pdrop: 0.0}" | tee out
expect "ok    model 'gpt2': stored(): every element of parameters and tensors exactly once" out
"$heddle" plugins inspect gpt2 >out
expect "n_embd" out

float32="mp_policy: {param_dtype: float32, reduce_dtype: float32}"
one="pp_schedule: 1f1b, pp_microbatch_size: 1"
run single gpt2 1 "strategy: single"
run microbatches gpt2 1 "strategy: single" --step_scheduler.local_batch_size 1
run ddp gpt2 2 "strategy: ddp"
run fsdp2 gpt2 2 "strategy: fsdp2, $float32" --step_scheduler.local_batch_size 1
run untied gpt2_untied 1 "strategy: single"
run fsdp2_recompute gpt2_untied 2 "strategy: fsdp2, $float32, activation_checkpointing: full"
run pipeline gpt2_untied 2 "strategy: ddp, pp_size: 2, pipeline: {$one}"
run split_backward gpt2_untied 2 "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: zb1p, pp_microbatch_size: 1}" \
  --step_scheduler.local_batch_size 4
run tensor gpt2 2 "strategy: ddp, tp_size: 2"
run tensor_untied gpt2_untied 2 "strategy: fsdp2, $float32, tp_size: 2"
run sequence gpt2_untied 2 "strategy: fsdp2, $float32, tp_size: 2, sequence_parallel: true"

say "exports have transformers' names and shapes, and equal values on every topology"
python3 - "$golden/gpt2/model.safetensors" out_*/LATEST/model/consolidated <<'PY' || fail "exports differ"
import json, pathlib, struct, sys
def read(file):
    data = pathlib.Path(file).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["shape"], struct.unpack(f"<{(entry['data_offsets'][1] - entry['data_offsets'][0]) // 4}f",
            data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])) for name, entry in header.items()}
start, runs = read(sys.argv[1]), {place: {} for place in sys.argv[2:]}
for place in runs:
    for file in pathlib.Path(place).glob("*.safetensors"):
        runs[place].update(read(file))
tied = {place: tensors for place, tensors in runs.items() if "lm_head.weight" not in tensors}
assert len(tied) == 5 and len(runs) == 11, (len(tied), len(runs))
for group in (tied, {place: tensors for place, tensors in runs.items() if place not in tied}):
    first = next(iter(group.values()))
    for place, tensors in group.items():
        assert {n: t[0] for n, t in tensors.items()} == {n: t[0] for n, t in first.items()}, place
        for name in first:  # AdamW amplifies the gradients of key biases, which are noise around zero
            kept = [i for i in range(len(first[name][1])) if not (name.endswith("c_attn.bias") and 36 <= i < 72)]
            worst = max(abs(tensors[name][1][i] - first[name][1][i]) for i in kept)
            assert worst < 2e-4, (place, name, worst)
one = next(iter(tied.values()))
assert {n: t[0] for n, t in one.items()} == {n: t[0] for n, t in start.items()}
assert all(max(abs(a - b) for a, b in zip(one[n][1], start[n][1])) > 1e-4 for n in one if n.endswith("weight"))
PY

for case in gpt2 gpt2_untied; do
  say "$case: converting to a sharded model and back gives the same bytes"
  "$heddle" convert "$golden/$case" "sharded_$case" --nproc-per-node 3
  "$heddle" convert "sharded_$case" "back_$case" --nproc-per-node 2
  for file in "$golden/$case"/model*; do cmp "$file" "back_$case/$(basename "$file")"; done
done

say "resumes from a checkpoint, and generates from it"
"$heddle" train run.yaml --nproc-per-node 2 --model "{pretrained_model_name_or_path: $golden/gpt2}" \
  --dataset "{file_pattern: $golden/gpt2/tokens.bin, seq_len: 17}" --distributed "{strategy: ddp}" \
  --checkpoint "{checkpoint_dir: out_half}" --metrics half.jsonl --step_scheduler.max_steps 5 >/dev/null
"$heddle" train run.yaml --model "{pretrained_model_name_or_path: $golden/gpt2}" \
  --dataset "{file_pattern: $golden/gpt2/tokens.bin, seq_len: 17}" --distributed "{strategy: single}" \
  --checkpoint "{checkpoint_dir: out_half}" --metrics half.jsonl >/dev/null
python3 - single.jsonl half.jsonl <<'PY' || fail "a resumed run differs"
import json, sys
one, two = ([json.loads(line)["loss"] for line in open(file)] for file in sys.argv[1:])
assert len(one) == len(two) == 12 and all(abs(a / b - 1) < 2e-5 for a, b in zip(one, two)), (one, two)
PY
"$heddle" generate out_half --tokens 1,2,3 --max-new-tokens 8 --temperature 0 | tee generated
"$heddle" generate out_single --tokens 1,2,3 --max-new-tokens 8 --temperature 0 | cmp - generated

say "the family refuses unsupported configurations"
"$heddle" check run.yaml --elsewhere --dataset "{file_pattern: none.bin, seq_len: 17}" \
  --model "{config: {model_type: gpt2, n_head: 4, n_embd: 30, resid_pdrop: 0.0, embd_pdrop: 0.0, attn_pdrop: 0.0}}" \
  >out 2>&1 && fail "the check accepts n_embd 30 with 4 heads"
expect "n_embd 30 is not a multiple of n_head 4" out
"$heddle" check run.yaml --elsewhere --dataset "{file_pattern: none.bin, seq_len: 17}" \
  --model "{config: {model_type: gpt2}}" >out 2>&1 && fail "the check accepts dropout"
expect "resid_pdrop is absent, which means 0.1; dropout is not built" out

say "a family started from a config.json: Llama's, with keys of every type that no model knows"
python3 - "$golden/llama" <<'PY'
import json, pathlib, random, shutil, struct, sys
shutil.copytree(sys.argv[1], "acme_llama")
file = pathlib.Path("acme_llama/config.json")
new = {"model_type": "acme_llama", "router": {"top": 2}, "no_rope_layers": [1, 0], "shares": [0.5, 1], "class": "x \"y\"", "gain": 1e-5,
       "count": 3, "is_new": True, "names": ["a", "b"], "nothing": None, "attention_dropout": 0.0}
file.write_text(json.dumps({**json.loads(file.read_text()), **new}))
tokens = random.Random(1).choices(range(64), k=4 * 17 + 1)
header = struct.pack("<256i", 20240520, 1, len(tokens), *([0] * 253))
pathlib.Path("llama.bin").write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))
PY
"$heddle" plugins new started --kind model --from-hf acme_llama
build "$outside/started" "$prefix" build_started
"$CMAKE_COMMAND" -E chdir "$outside/build_started" ctest --output-on-failure >out || { cat out >&2; fail "its test"; }
"$heddle" train started/started.yaml --plugins "[$outside/build_started/plugins]" --step_scheduler.max_steps 2 >out 2>&1 ||
  { cat out >&2; fail "its run"; }
for model in "$golden/llama" "$outside/acme_llama"; do
  HEDDLE_PLUGIN_PATH="$outside/build_started/plugins" "$heddle" train run.yaml --distributed "{strategy: single}" \
    --model "{pretrained_model_name_or_path: $model}" --dataset "{file_pattern: llama.bin, seq_len: 17}" \
    --step_scheduler.num_epochs 3 --step_scheduler.max_steps 3 \
    --checkpoint "{checkpoint_dir: out_$(basename "$model")}" --metrics "$(basename "$model").jsonl" >out 2>&1 ||
    { cat out >&2; fail "$model does not train"; }
done
losses() { grep -oE '"(loss|grad_norm)": ?[0-9.e-]+' "$1"; }
[ "$(losses llama.jsonl | wc -l)" -eq 6 ] || fail "3 steps were asked for"
diff <(losses llama.jsonl) <(losses acme_llama.jsonl) || fail "the started family differs from Llama"

say "compare.py of the template and of the started family"
"$heddle" plugins new plain --kind model
build "$outside/plain" "$prefix" build_plain
sed -i 's/REFERENCE = "acme_llama"/REFERENCE = "llama"/' started/compare.py
if ! "${PYTHON:-python3}" -c "import transformers" 2>out; then
  say "not run: ${PYTHON:-python3} has no transformers"
  exit 0
fi
for name in plain started; do
  "${PYTHON:-python3}" "$name/compare.py" --heddle "$heddle" --plugins "build_$name/plugins" | tee out
  [ "$(grep -c '^equal' out)" -eq 7 ] || fail "compare.py of $name compared other values"
done
sed -i 's/1 \/ keys.logits_scaling/keys.logits_scaling/' plain/plain.cpp
build "$outside/plain" "$prefix" build_plain
"${PYTHON:-python3}" plain/compare.py --heddle "$heddle" --plugins build_plain/plugins >out && fail "a wrong family is equal"
expect "DIFFERS loss of step 1" out
