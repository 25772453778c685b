// A small decoder. HEDDLE_FAULT selects a fault; each fault violates one sentence of heddle/model/*.h.
#include "model.h"

#include <chrono>
#include <cmath>
#include <stdexcept>

#include "fault.h"

namespace {

using faults::Config;
using faults::is;

std::vector<heddle::FieldInfo> keys() {
  std::vector<heddle::FieldInfo> out = {
      {"vocab_size", "int", "29", "1..1000", "Tokens.", ""},
      {"hidden_size", "int", "12", "a multiple of 4", "Width.", ""},
      {"num_layers", "int", "2", "1..100", "Layers.", ""},
      {"max_positions", "int", "32", "1..1000", "Longest sequence.", ""},
      {"scale", "float", is("default_is_another") ? "0.25" : "0.5", "above 0", "Factor of each MLP.", ""},
      {"dtype", "str", "null", "", "Dtype of the stored weights.", ""}};
  // The types are spelled as ModelKeys writes them.
  if (is("untyped_keys"))
    for (heddle::FieldInfo& key : out) key.type.clear();
  if (is("keys_without_help"))
    for (heddle::FieldInfo& key : out) key.help.clear();
  if (is("types_of_another_kind"))
    for (heddle::FieldInfo& key : out) key.type = "size of something";
  if (is("large_default")) out.front() = {"vocab_size", "count", "200000000", "1..", "Tokens.", ""};
  if (is("help_hides_a_key")) out[4].help = "Factor of each MLP; ignored tokens have it too.";
  if (is("key_without_effect") || is("two_faults"))
    out.push_back({"window", "integer", "4", "1..9", "Window of each head.", ""});
  if (is("key_that_is_not_read"))
    out.push_back({"cap", "number", "0.5", "above 0", "Cap of the logits.", ""});
  return out;
}

class Spec : public heddle::ModelSpec {
 public:
  Spec(Config config, bool given) : config_(std::move(config)), given_(given) {}
  heddle::ModelFacts facts() const override {
    if (is("throws_in_facts")) throw std::runtime_error("no facts");
    return {is("facts_name_another_type") ? "other" : "faulty",
            config_.vocab_size + (is("vocabulary_too_large") ? 9 : 0),
            config_.max_positions * (is("positions_too_many") ? 2 : 1), config_.dtype};
  }
  heddle::Units make_units(const at::TensorOptions& given) const override {
    if (is("throws_in_make_units")) throw std::runtime_error("no units");
    if (is("loops_in_make_units")) loop();
    at::TensorOptions options = given;
    if (is("dtype_ignored")) options = options.dtype(at::kFloat);
    if (is("device_ignored")) options = options.device(at::kCPU);
    heddle::Units units = faults::make_units(config_, options);
    if (is("one_unit")) units.resize(1);
    return units;
  }
  std::map<std::string, std::string> signature() const override {
    if (is("no_signature")) return {};
    if (is("signature_is_constant")) return {{"model", "faulty"}};
    std::map<std::string, std::string> out = {{"hidden_size", std::to_string(config_.hidden_size)},
                                              {"num_layers", std::to_string(config_.num_layers)},
                                              {"vocab_size", std::to_string(config_.vocab_size)},
                                              {"scale", heddle::Node::real(config_.scale).written()}};
    if (is("signature_lacks_a_factor")) out.erase("scale");
    if (is("signature_lacks_a_size")) out.erase("hidden_size");
    return out;
  }
  std::string config_json(const std::string& dtype) const override {
    const std::string type = is("config_names_another_type") ? "other" : "faulty";
    std::string out = "{\"model_type\": \"" + type +
                      "\", \"vocab_size\": " + std::to_string(config_.vocab_size) +
                      ", \"hidden_size\": " + std::to_string(config_.hidden_size) +
                      ", \"num_layers\": " + std::to_string(config_.num_layers) +
                      ", \"max_positions\": " + std::to_string(config_.max_positions);
    const double scale = is("key_is_rounded") ? std::round(config_.scale * 100) / 100 : config_.scale;
    if (is("writes_another_text"))
      out += ", \"scale\": " + heddle::Node::real(scale).written() + (given_ ? "00" : "");
    else if (!is("key_is_not_written") && !is("help_hides_a_key"))
      out += ", \"scale\": " + heddle::Node::real(scale).written();
    if (!is("dtype_is_not_written")) out += ", \"dtype\": \"" + dtype + "\"";
    return out + (is("no_json") ? "" : "}");
  }
  double flops_per_token(int64_t sequence) const override {
    const double width = static_cast<double>(config_.hidden_size),
                 layers = static_cast<double>(config_.num_layers);
    const double experts = faults::has_experts() ? 6 * width * width + 4 * width : 0;
    const double products = 6 * (layers * (8 * width * width + experts) +
                                 width * static_cast<double>(config_.vocab_size)),
                 attention = 6 * layers * width * static_cast<double>(sequence);
    if (is("flops_shrink")) return products / static_cast<double>(sequence);
    if (is("flops_of_the_forward")) return (products + attention) / 3;
    if (is("flops_of_a_wider_model")) return 16 * (products + attention);
    return is("no_flops") ? 0 : products + attention;
  }
  heddle::StoredParts stored(const std::string& name, std::span<const int64_t> shape) const override {
    const bool table = name == "embed.table.weight", head = name == "last.head.weight";
    if (is("stored_overlap") && (table || head))  // both read the second half; the first half stays unread
      return heddle::stored::slice("both", shape, 0, table ? 0 : 5, 2 * shape[0]);
    if (is("stored_leaves_a_gap") && table) return heddle::stored::slice("table", shape, 0, 1, shape[0] + 2);
    if (is("stored_twice") && table) return heddle::stored::whole("last.head.weight", shape);
    if (is("stored_has_another_shape") && table) {
      const std::vector<int64_t> wrong = {shape[0] + 1, shape[1]};
      return heddle::stored::whole("table", wrong);
    }
    return {};
  }
  std::vector<std::string> other_names(const std::string& tensor) const override {
    if (is("other_name_is_another_parameter") && tensor == "embed.table.weight") return {"last.head.weight"};
    return {};
  }
  bool passes_over(const std::string& tensor) const override {
    return is("passes_over_a_parameter") && tensor == "layers.0.gain";
  }

 private:
  // Spins longer than the time limit that tests give a kit, but not forever.
  static void loop() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(12);
    while (std::chrono::steady_clock::now() < end) {
    }
  }

  Config config_;
  bool given_;  // whether the key `scale` is set
};

class Family : public heddle::IModelFamily {
 public:
  std::unique_ptr<heddle::ModelSpec> read(const heddle::Node& given,
                                          heddle::UnknownKeys unknown) const override {
    if (is("throws_in_read")) throw std::runtime_error("no table of keys");
    namespace model = heddle::model;
    if (!is("unknown_keys_pass")) model::check_keys(given, keys(), unknown);
    if (is("unknown_keys_refused")) model::check_keys(given, keys(), heddle::UnknownKeys::refused);
    Config config;
    config.vocab_size = model::size_or(given, "vocab_size", config.vocab_size);
    config.hidden_size = model::size_or(given, "hidden_size", config.hidden_size);
    config.num_layers = model::size_or(given, "num_layers", config.num_layers, 100);
    config.max_positions = model::size_or(given, "max_positions", config.max_positions);
    config.scale = model::real_or(given, "scale", config.scale);
    config.dtype = model::text_or(given, "dtype", "");
    if (is("key_without_effect") || is("two_faults")) (void)model::size_or(given, "window", 4);
    if (is("large_default")) config.vocab_size = model::size_or(given, "vocab_size", 200000000);
    if (config.hidden_size % 4 != 0)
      model::refuse(*given.find("hidden_size"), "hidden_size is no multiple of 4");
    return std::make_unique<Spec>(config, given.find("scale") != nullptr);
  }
};

}  // namespace

HEDDLE_PLUGIN("faulty_model", "0.1.0", "model faulty") {
  plugin.model<Family>("faulty", keys());
}
