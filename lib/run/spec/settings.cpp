// Describes data, tokenizer and settings as short texts.
#include "lib/run/spec/settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/samples/sample_set.h"
#include "lib/run/model/identity/model_identity.h"

namespace heddle {
namespace {

using Texts = std::map<std::string, std::string>;

std::string setting_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}
std::string setting_text(int64_t value) {
  return std::to_string(value);
}
std::string setting_text(bool value) {
  return value ? "true" : "false";
}
std::string setting_text(const std::string& value) {
  return value;
}
template <class T>
std::string setting_text(const std::optional<T>& value) {
  return value ? setting_text(*value) : "null";
}

std::string setting_text(const Node& value) {
  if (value.kind() == Node::Kind::real) return setting_text(value.as_real());
  if (!value.is_list()) return config::to_json(value);
  std::string out;
  for (const Node& item : value.items()) out += (out.empty() ? "" : ", ") + setting_text(item);
  return "[" + out + "]";
}

void add_optimizer(const OptimizerSection& section, Texts& out) {
  out["optimizer._target_"] = section.name;
  for (const auto& [key, value] : section.fields.entries())
    if (std::find(section.no_effect.begin(), section.no_effect.end(), key) == section.no_effect.end())
      out["optimizer." + key] = setting_text(value);
  out["optimizer.weight_decay"] = setting_text(section.weight_decay);
  out["optimizer.master_weights"] = setting_text(section.master_weights);
  std::string groups;
  for (const ParameterGroup& group : section.groups)
    groups += (groups.empty() ? "" : "; ") + group.pattern + ": lr_mult " + setting_text(group.lr_mult) +
              ", wd_mult " + setting_text(group.wd_mult);
  out["optimizer.param_group_overrides"] = groups.empty() ? "null" : groups;
}

void add_schedule(const std::optional<LrSection>& section, Texts& out) {
  out["lr_scheduler"] = section ? "given" : "null";
  if (!section) return;
  const auto add = [&](const char* key, const std::string& value) {
    out[std::string("lr_scheduler.") + key] = value;
  };
  add("lr_decay_style", section->lr_decay_style);
  add("lr_warmup_steps", setting_text(section->lr_warmup_steps));
  add("lr_decay_steps", setting_text(section->lr_decay_steps));
  add("init_lr", setting_text(section->init_lr));
  add("max_lr", setting_text(section->max_lr));
  add("min_lr", setting_text(section->min_lr));
  add("start_wd", setting_text(section->start_wd));
  add("end_wd", setting_text(section->end_wd));
  add("wd_incr_steps", setting_text(section->wd_incr_steps));
  add("wd_incr_style", section->wd_incr_style);
  add("wsd_decay_steps", setting_text(section->wsd_decay_steps));
  add("lr_wsd_decay_style", setting_text(section->lr_wsd_decay_style));
}

// Whether a field of `distributed:` affects results: dtypes and router settings do.
bool changes_numbers(std::string_view key) {
  constexpr std::array<std::string_view, 11> kWords = {"dtype", "precision", "fp32", "fp16", "bf16",   "fp8",
                                                       "drop_", "capacity",  "gate", "aux_", "balance"};
  return key != "pad_to_capacity" && std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
           return key.find(word) != key.npos;
         });
}

void add_fields(const std::string& path, const Node& fields, Texts& out) {
  if (!fields.is_map()) return;
  for (const auto& [key, value] : fields.entries()) {
    if (value.is_map())
      add_fields(path + "." + key, value, out);
    else if (changes_numbers(key))
      out[path + "." + key] = config::to_json(value);
  }
}

void add_model(const ModelSpec& spec, at::ScalarType dtype, const std::string& path, Texts& out) {
  out[path + ".dtype"] = dtype == at::kFloat ? "float32" : "bfloat16";
  const auto keys = checkpoint::hf_json_if_valid(spec.config_json("float32"));
  if (!keys || !keys->is_object()) return;
  for (const auto& [key, value] : keys->items())
    if (!key.ends_with("dtype") && !key.ends_with("version") && !key.ends_with("token_id"))
      out[path + ".config." + key] = checkpoint::write_hf_json(value, -1);
}

// The checksum of a prepared file covers its header, so some samples are read too.
std::string samples_checksum(const IDataset& samples) {
  constexpr int64_t kSamples = 64;
  const int64_t size = samples.size(), count = std::min(size, kSamples);
  std::string sums;
  std::vector<int64_t> tokens, labels;
  std::vector<int32_t> documents;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = count == 1 ? 0 : (size - 1) * i / (count - 1);
    tokens.resize(static_cast<size_t>(samples.length(sample)));
    labels.resize(tokens.size());
    samples.read(sample, {tokens, labels, documents, 0});
    for (const auto* values : {&tokens, &labels})
      sums += checkpoint::checksum(
          {reinterpret_cast<const char*>(values->data()), values->size() * sizeof(int64_t)});
  }
  return checkpoint::checksum(sums);
}

void add_dataset(const std::string& section, const Rows& dataset, Texts& out) {
  const IDataset& samples = dataset.samples();
  const std::vector<DataInput> inputs = samples.inputs();
  const bool is_prepared = std::any_of(inputs.begin(), inputs.end(), [](const DataInput& input) {
    return input.description == kPreparedInput;
  });
  const std::string digest = samples.digest() + (is_prepared ? samples_checksum(samples) : "");
  out["samples of " + section] =
      std::to_string(dataset.size()) + " rows, checksum " + checkpoint::checksum(digest);
  if (const DataTokenizer made = samples.tokenizer(); !made.digest.empty())
    out["tokenizer of " + section] = "checksum " + made.digest;
}

// Checkpoint files are compared by name and size, and by the manifests, which contain checksums of all
// tensors.
std::string checkpoint_digest(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::vector<std::string> lines;
  for (const char* part : {"", "model", "optim"})
    for (const fs::directory_entry& entry : fs::directory_iterator(directory / part)) {
      if (!entry.is_regular_file()) continue;
      const fs::path& file = entry.path();
      lines.push_back(fs::path(part) / file.filename());
      lines.back() += " " + std::to_string(entry.file_size());
      if (file.filename() == checkpoint::kManifest) lines.back() += " " + checkpoint::read_manifest(file).sum;
    }
  std::sort(lines.begin(), lines.end());
  return directory.filename().string() + ", checksum " + checkpoint::checksum(text::join(lines, "\n"));
}

// Whether a value of a key means the same as a missing key.
bool means_nothing(const std::string& value) {
  constexpr std::array<std::string_view, 7> kDefaults = {"",         "null",       "false",      "[]",
                                                         "\"auto\"", "\"weight\"", "\"float32\""};
  return std::find(kDefaults.begin(), kDefaults.end(), value) != kDefaults.end();
}

std::string in_short(const std::string& value) {
  constexpr size_t kMost = 120;
  if (value.empty()) return "not set";
  return value.size() <= kMost ? value : value.substr(0, kMost) + "...";
}

}  // namespace

std::vector<std::string> changed_settings(const std::string& name, const Texts& there, const Texts& here) {
  if (there.empty())
    return {name +
            " was saved by an older heddle without a digest of its data and settings, so they cannot be "
            "compared"};
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [key, value] : there) both[key].first = value;
  for (const auto& [key, value] : here) both[key].second = value;
  std::vector<std::string> out;
  for (const auto& [key, values] : both) {
    const auto& [was, is] = values;
    const bool one_sided = was.empty() || is.empty();
    if (was == is || (one_sided && !key.starts_with("model.") && means_nothing(was) && means_nothing(is)))
      continue;
    out.push_back(key + " was " + in_short(was) + " in the run that saved " + name + ", and is " +
                  in_short(is) + " now");
  }
  return out;
}

std::string changed_model(const Position& there, const RunSpec& run) {
  const auto configuration_in = [](const Texts& settings) {
    Texts out;
    for (const auto& [key, value] : settings)
      if (key.starts_with("model.config.")) out.emplace(key, value);
    return out;
  };
  const Texts signature = run.model.spec->signature(), before = configuration_in(there.settings);
  const bool same = !before.empty() && before == configuration_in(run.settings);
  for (const auto& [key, here] : signature) {
    const auto found = there.model.find(key);
    if (found == there.model.end() ? !same : found->second != here)
      return key + " was " + (found == there.model.end() ? "not recorded" : found->second) + ", now " + here;
  }
  for (const auto& [key, saved] : there.model)
    if (signature.count(key) == 0) return key + " was " + saved + ", now it is not set";
  return "";
}

std::map<std::string, std::string> content_of(const RunSpec& run) {
  Texts out{{"data set", run.dataset.samples().digest()}};
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (const auto found = run.model.origin.files.find(name); found != run.model.origin.files.end()) {
      out["tokenizer"] = std::string(name) + " of checksum " + checkpoint::checksum(found->second);
      return out;
    }
  const DataTokenizer made = run.dataset.samples().tokenizer();
  if (!made.digest.empty())
    out["tokenizer"] = kTokenizerFile + made.digest;
  else if (made.holds_bytes)
    out["tokenizer"] = "bytes";
  return out;
}

std::map<std::string, std::string> files_of(const RunSpec& run) {
  Texts out = file_digests_of(run.model, run.bases);
  add_dataset("dataset", run.dataset, out);
  for (const ValidationSet& set : run.validation)
    add_dataset("validation_dataset" + (set.name.empty() ? "" : "_" + set.name), set.dataset, out);
  if (run.resume) out["checkpoint to resume from"] = checkpoint_digest(run.resume->directory);
  return out;
}

std::map<std::string, std::string> settings_of(const RunSpec& run) {
  Texts out;
  add_optimizer(run.recipe.optimizer, out);
  add_schedule(run.recipe.lr_schedule, out);
  out["step_scheduler.local_batch_size"] = setting_text(run.recipe.steps.local_batch_size);
  out["dataloader.drop_last"] = setting_text(run.recipe.whole_samples > 1);
  if (run.dataset.used_samples() < run.dataset.samples().size())
    out["dataset.limit_dataset_samples"] = setting_text(run.dataset.used_samples());
  out["clip_grad_norm.max_norm"] = setting_text(run.recipe.max_norm);
  out["clip_grad_norm.norm_type"] = setting_text(run.recipe.norm_type);
  for (const std::string& name : run.recipe.idle) out[name] = "null";
  for (size_t i = 0; i < run.model.transforms.size(); ++i)
    out[run.model.transforms[i].name] = i < run.model.changes.size() && run.model.changes[i].is_nothing()
                                            ? "null"
                                            : run.model.transforms[i].setting;
  add_model(*run.model.spec, run.model.dtype, "model", out);
  for (const ActiveTransform& one : run.model.transforms)
    if (one.run.other_model != nullptr)
      add_model(*one.run.other_model->spec, one.run.other_model->dtype, one.name, out);
  add_fields("distributed", run.setup.strategy_config, out);
  for (const auto& [name, section] : run.setup.sections) add_fields("distributed." + name, section, out);
  return out;
}

}  // namespace heddle
