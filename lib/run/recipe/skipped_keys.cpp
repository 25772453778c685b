// Tables of skipped sections and keys, each with a reason.
#include "lib/run/recipe/skipped_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {

std::string text_of(const std::vector<SkippedKey>& skipped, bool with_reasons) {
  if (skipped.empty()) return "";
  if (with_reasons) {
    std::string out;
    for (const SkippedKey& one : skipped) out += "skipped: " + one.key + ": " + one.why + "\n";
    return out;
  }
  std::vector<std::string> keys;
  for (const SkippedKey& one : skipped) keys.push_back(one.key);
  return "skipped: " + text::join(keys) +
         "; no effect on results (heddle check --verbose prints the reasons)\n";
}

namespace recipe {
namespace {

struct Known {
  std::string_view name, why;
};

constexpr std::array<Known, 6> kSkipped = {{
    {"ci", "settings of AutoModel's CI"},
    {"skypilot", "cloud jobs are started by other tools"},
    {"nvtx", "NVTX ranges for CUDA profilers are not recorded; use --trace"},
    {"prewarm", "no kernel needs a warmup"},
    {"compile", "layers are fused kernels, so there is no graph to compile"},
    {"tool_call_eval", "generated tool calls are not scored"},
}};

// AutoModel does not read these sections either.
constexpr std::array<Known, 5> kUnread = {{
    {"tokenizer", "the tokenizer is that of the data set or of the model"},
    {"parallelizer", "its keys are those of distributed"},
    {"autopipeline", "its keys are those of distributed.pipeline"},
    {"distributed_config", "its keys are those of distributed"},
    {"longalign", "samples are shuffled as dataloader says"},
}};

constexpr std::string_view kLogger = "comet";  // has no plugin

constexpr std::array<Known, 9> kModelKeys = {{
    {"trust_remote_code", "code in a model's directory is never executed"},
    {"attn_implementation", "attention has one kernel on each device"},
    {"output_hidden_states", "the loss always gets the hidden states"},
    {"force_hf", "there is one implementation of each family"},
    {"use_liger_kernel", "there is one kernel of each layer on each device"},
    {"use_sdpa_patching", "attention has one kernel on each device"},
    {"sdpa_method", "attention has one kernel on each device"},
    {"kda_mode", "there is one kernel of each layer on each device"},
    {"use_cache", "training does not generate text"},
}};

// A key of model.backend that selects a kernel, and the values that AutoModel accepts; empty: any value.
struct Kernel {
  std::string_view key;
  std::vector<std::string> words = {};
};
const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> all = {
      {"attn", {"te", "sdpa", "eager", "tilelang", "magi", "torch", "flex", "cudnn"}},
      {"linear", {"te", "torch", "quack"}},
      {"rms_norm", {"torch_fp32", "te", "torch", "quack"}},
      {"rope", {"torch", "te", "quack"}},
      {"rope_fusion"},
      {"experts", {"torch_mm", "gmm", "te", "torch", "mok", "torch_mm_mxfp8"}},
      {"dispatcher", {"hybridep", "deepep", "torch", "mok", "uccl_ep"}},
      {"dispatcher_num_sms"},
      {"dispatcher_share_token_dispatcher"},
      {"dispatcher_async_dispatch"},
      {"mok"},
      {"enable_hf_state_dict_adapter"},
      {"enable_fsdp_optimizations"},
      {"enable_deepep"},
      {"compile_attn"},
      {"cuda_graph"},
      {"_target_"}};
  return all;
}

template <class Table>
const Known* find(const Table& table, const std::string& name) {
  const auto at =
      std::find_if(table.begin(), table.end(), [&](const Known& one) { return one.name == name; });
  return at == table.end() ? nullptr : &*at;
}

bool is_turned_off(const Node& section) {
  if (!section.is_map()) return false;
  for (const char* key : {"enabled", "enable"})
    if (const Node* on = section.find(key);
        on != nullptr && on->kind() == Node::Kind::boolean && !on->as_boolean())
      return true;
  return false;
}

// AutoModel reads the seed from the key `seed` only.
void note_rng(const Node& root, const Node& rng, RecipeNotes& notes) {
  notes.skipped.push_back({"rng", "the seed is that of the key seed (default 42)"});
  const Node* given = rng.is_map() ? rng.find("seed") : nullptr;
  const Node* seed = root.find("seed");
  if (given == nullptr || given->kind() != Node::Kind::integer) return;
  const int64_t acting = seed != nullptr && seed->kind() == Node::Kind::integer ? seed->as_integer() : 42;
  if (given->as_integer() == acting) return;
  notes.warnings.push_back(given->where() + " has no effect, as in AutoModel: the seed is " +
                           std::to_string(acting) + ". Set seed: " + given->written());
}

void check_kernel(const Kernel& kernel, const Node& value) {
  if (kernel.words.empty() || value.is_null()) return;
  const bool known = value.kind() == Node::Kind::text && std::find(kernel.words.begin(), kernel.words.end(),
                                                                   value.as_text()) != kernel.words.end();
  if (!known)
    throw Error(ErrorCode::config, value.where(),
                "expected one of " + text::join(kernel.words) + ", got " + value.written());
}

Error unknown_backend_key(const std::string& key, const Node& value) {
  std::vector<std::string> names = {"fake_balanced_gate", "fake_gate_noise", "gate_precision", "te_fp8"};
  for (const Kernel& one : kernels()) names.emplace_back(one.key);
  const std::string nearest = text::nearest(key, names);
  return {ErrorCode::config, value.where(), "unknown key '" + text::excerpt(key) + "'",
          nearest.empty() ? "the keys are " + text::join(names) : "did you mean '" + nearest + "'?"};
}

// Reads a key of model.backend. Appends keys that act as keys of the model to `keys`.
void add_backend_key(const Node::Entry& entry, std::vector<Node::Entry>& keys, RecipeNotes& notes) {
  const auto& [key, value] = entry;
  const auto not_built = [&, &name = key](const char* what) {
    notes.not_built.push_back("model.backend." + name + ": " + what + " not built yet");
  };
  const auto kernel = std::find_if(kernels().begin(), kernels().end(),
                                   [&, &name = key](const Kernel& one) { return one.key == name; });
  if (kernel != kernels().end()) {
    check_kernel(*kernel, value);
    if (value.kind() == Node::Kind::text && value.as_text() == "torch_mm_mxfp8")
      not_built("products in mxfp8 are");
  } else if (key == "fake_balanced_gate") {
    if (value.as_boolean()) keys.emplace_back(key, value);
  } else if (key == "fake_gate_noise") {
    if (value.as_real() != 0) not_built("noise on the gate is");
  } else if (key == "gate_precision") {
    if (!value.is_null()) keys.emplace_back("router_dtype", value);
  } else if (key != "te_fp8") {  // read as a section of its own
    throw unknown_backend_key(key, value);
  }
}

}  // namespace

bool skip(const Node& root, const std::string& name, const Node& section, RecipeNotes& notes) {
  if (name.starts_with("_")) return true;
  if (name == "rng") {
    note_rng(root, section, notes);
    return true;
  }
  if (const Known* known = find(kSkipped, name)) {
    notes.skipped.push_back({name, std::string(known->why)});
    return true;
  }
  if (const Known* known = find(kUnread, name)) {
    notes.skipped.push_back({name, std::string(known->why)});
    notes.warnings.push_back(section.where() + " has no effect, as in AutoModel: " + std::string(known->why));
    return true;
  }
  if (name == kLogger && is_turned_off(section)) {
    notes.skipped.push_back({name, "it is off"});
    return true;
  }
  return false;
}

constexpr std::array<const char*, 3> kMtpKeys = {"num_nextn_predict_layers", "mtp_loss_scaling_factor",
                                                 "mtp_use_repeated_layer"};

Node mtp_keys(const Node& model) {
  std::vector<Node::Entry> keys;
  for (const char* key : kMtpKeys)
    if (const Node* value = model.find(key); value != nullptr && !value->is_null())
      keys.emplace_back(key, *value);
  return keys.empty() ? Node() : Node::map(std::move(keys), model.mark(), model.path());
}

const Node* mtp_heads(const Node& model) {
  const Node* heads = model.find("num_nextn_predict_layers");
  return heads != nullptr && !heads->is_null() && heads->as_integer() > 0 ? heads : nullptr;
}

Node without_python_keys(const Node& model, RecipeNotes& notes) {
  Node rest = model;
  const auto take = [&](const std::string& key, std::string why) {
    notes.skipped.push_back({"model." + key, std::move(why)});
    rest = rest.without(key);
  };
  for (const Known& known : kModelKeys)
    if (model.find(known.name) != nullptr) take(std::string(known.name), std::string(known.why));
  for (const char* key : kMtpKeys) {
    if (model.find(key) == nullptr) continue;
    if (mtp_heads(model) != nullptr)
      rest = rest.without(key);
    else
      take(key, "it applies to models with multi-token prediction heads only");
  }
  return rest;
}

std::vector<Node::Entry> keys_of_backend(const Node& backend, RecipeNotes& notes) {
  std::vector<Node::Entry> keys;
  Errors errors;
  for (const Node::Entry& entry : backend.entries())
    errors.attempt([&] { add_backend_key(entry, keys, notes); });
  errors.raise();
  const bool acts = !keys.empty() || backend.find("te_fp8") != nullptr;
  notes.skipped.push_back({acts ? "the kernels of model.backend" : "model.backend",
                           "there is one kernel of each layer on each device"});
  return keys;
}

}  // namespace recipe
}  // namespace heddle
