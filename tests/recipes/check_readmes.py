"""Checks that `heddle check` accepts the YAML examples in the READMEs of plugins: check_readmes.py HEDDLE. BASE provides the
sections that an example lacks. Each example must be accepted on 1, 2 or 4 ranks. Missing models and data are warnings."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = {
    "model": "{config: {model_type: qwen3, vocab_size: 256, hidden_size: 64, intermediate_size: 192, num_hidden_layers: 4,\n"
             "                 num_attention_heads: 4, num_key_value_heads: 4, head_dim: 16}}",
    "dataset": "{_target_: MockIterableDataset, seq_len: 64, num_samples: 128}",
    "step_scheduler": "{global_batch_size: 32, local_batch_size: 4, max_steps: 2}",
}


def examples():
    for page in sorted((ROOT / "plugins").glob("*/README.md")):
        if not (pathlib.Path(sys.argv[1]).parent / f"plugins/libheddle_{page.parent.name}.so").exists():
            continue  # nccl needs CUDA
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S), 1):
            sections = set(re.findall(r"^(\w+):", text, re.M))
            yield f"{page.parent.name}_{number}.yaml", text + "".join(
                f"{name}: {value}\n" for name, value in BASE.items() if name not in sections)


with tempfile.TemporaryDirectory() as folder:
    names = []
    for name, text in examples():
        (pathlib.Path(folder) / name).write_text(text)
        names.append(name)
    (pathlib.Path(folder) / "template.jinja").write_text("{{ messages }}")  # used by the example of plugins/chat
    out = subprocess.run([sys.argv[1], "check", *names, "--world-size", "1,2,4", "--elsewhere", "--json"], cwd=folder,
                         capture_output=True, text=True)
accepted, errors = set(), {}
for line in out.stdout.splitlines():
    result = json.loads(line)
    if "error" in result:
        errors[result["config"]] = result["error"]
    else:
        accepted.add(result["config"])
refused = [name for name in names if name not in accepted]
for name in refused:
    print(f"{name}: refused: {errors.get(name, out.stderr)}")
print(f"{len(names)} examples, {len(refused)} refused")
sys.exit(1 if refused or not names else 0)
