// Writes the C++ text of a model family from the keys of a config.json.
#include "trainer/cli/plugins/family_start.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/node.h"
#include "heddle/decoder/family.h"
#include "heddle/model/config_keys.h"
#include "lib/checkpoint/huggingface/read_config.h"

namespace heddle::cli {
namespace {

using decoder::RotaryKeys;

// Members of decoder::CommonKeys by their keys in config.json. Their defaults are values of the file.
constexpr std::array<std::string_view, 9> kSizes = {
    "vocab_size",        "hidden_size",         "intermediate_size",
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim",          "pad_token_id",        "max_position_embeddings"};
constexpr std::array<std::string_view, 3> kReals = {"rms_norm_eps", "initializer_range", "attention_dropout"};
constexpr std::array<std::string_view, 4> kRotary = {"rope_theta", "rope_scaling", "rope_parameters",
                                                     "partial_rotary_factor"};
// Keys that common_keys() reads and whose values are no defaults of a family.
constexpr std::array<std::string_view, 4> kWithoutDefault = {"model_type", "dtype", "torch_dtype",
                                                             "quantization_config"};
// Words that no member of Keys may have as its name, besides the keys above.
constexpr std::array<std::string_view, 24> kReserved = {
    "auto",     "bool", "case",   "char",      "class", "const", "default", "do",
    "double",   "else", "enum",   "float",     "if",    "int",   "long",    "new",
    "template", "this", "rotary", "attention", "norm",  "model", "mlp",     "short"};

template <size_t n>
bool has(const std::array<std::string_view, n>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Whether every model ignores the key, such as transformers_version.
bool is_without_effect(const std::string& key) {
  try {
    model::check_keys(Node::map({{key, Node()}}), {}, UnknownKeys::refused);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Returns the C++ type of a field with this value; empty if no field has it.
std::string type_of(const Node& value) {
  switch (value.kind()) {
    case Node::Kind::boolean:
      return "bool";
    case Node::Kind::integer:
      return "int64_t";
    case Node::Kind::real:
      return std::isfinite(value.as_real()) ? "double" : "";
    case Node::Kind::text:
      return "std::string";
    case Node::Kind::list:
      break;
    default:
      return "";
  }
  std::string out;
  for (const Node& item : value.items()) {
    std::string type = item.is_list() ? "" : type_of(item);
    if (out.empty()) out = type;
    if (out != type && (out == "double" || type == "double") && (out == "int64_t" || type == "int64_t"))
      out = type = "double";
    if (type.empty() || type == "bool" || type != out) return "";
  }
  return out.empty() ? "" : "std::vector<" + out + ">";
}

// Returns a value of type_of() as a C++ initializer.
std::string literal(const Node& value) {
  if (!value.is_list()) return config::to_json(value);
  std::vector<std::string> items;
  for (const Node& item : value.items()) items.push_back(literal(item));
  return "{" + text::join(items) + "}";
}

std::string member_name(const std::string& key) {
  std::string out;
  for (const char c : key) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "key_" + out;
  const bool taken = has(kReserved, out) || (out != key && (has(kSizes, out) || has(kReals, out)));
  return taken ? out + "_" : out;
}

// Returns a RotaryScaling as a C++ initializer: the kind, and members that differ from their defaults.
std::string scaling_text(const RotaryScaling& scaling) {
  constexpr std::array<const char*, 4> kKinds = {"none", "linear", "llama3", "yarn"};
  const RotaryScaling usual;
  std::string out =
      std::string("{.kind = heddle::RotaryScaling::Kind::") + kKinds[static_cast<size_t>(scaling.kind)];
  const auto add = [&](const char* member, const Node& value, const Node& otherwise) {
    if (!(value == otherwise)) out += std::string(", .") + member + " = " + literal(value);
  };
  const auto real = [&](const char* member, double RotaryScaling::*slot) {
    add(member, Node::real(scaling.*slot), Node::real(usual.*slot));
  };
  real("factor", &RotaryScaling::factor);
  real("low_freq_factor", &RotaryScaling::low_freq_factor);
  real("high_freq_factor", &RotaryScaling::high_freq_factor);
  add("original_positions", Node::integer(scaling.original_positions),
      Node::integer(usual.original_positions));
  real("beta_fast", &RotaryScaling::beta_fast);
  real("beta_slow", &RotaryScaling::beta_slow);
  add("truncate", Node::boolean(scaling.truncate), Node::boolean(usual.truncate));
  real("attention_factor", &RotaryScaling::attention_factor);
  real("mscale", &RotaryScaling::mscale);
  real("mscale_all_dim", &RotaryScaling::mscale_all_dim);
  return out + "}";
}

// Collects the parts of the text, key by key.
class FamilyWriter {
 public:
  FamilyWriter(const Node& keys, const std::string& model_type) : keys_(keys), model_type_(model_type) {
    read_common();
    read_rotary();
    for (const auto& [key, value] : keys.entries())
      if (!is_common(key) && !is_without_effect(key) && !add_used(key, value)) add_unused(key, value);
  }

  std::string source() const {
    return "// The keys of config.json: the common keys of decoders and this family's own keys. Defaults are "
           "the\n"
           "// values of the file that the family was started from.\n"
           "struct Keys : decoder::CommonKeys {\n  Keys() {\n" +
           defaults_ + "  }\n" + members_ + unused_members_ +
           "};\n\n// Declares the keys, for the table, the reader and the writer.\n"
           "heddle::model::ModelKeys<Keys> keys() {\n  auto keys = decoder::common_keys<Keys>();\n" +
           declarations_ +
           "  return keys;\n}\n\n// Returns Llama's layers with the keys that have the usual meaning. "
           "Describe what "
           "differs:\n// heddle/decoder/description.h lists what can be described.\n"
           "decoder::Model model_of(const Keys& keys) {\n  decoder::Attention attention = "
           "keys.attention();\n" +
           attention_ + "  decoder::Mlp mlp = keys.mlp(" + activation_ + ");\n" + mlp_ +
           "  decoder::Model model = keys.model({attention, mlp, keys.norm()});\n" + model_ +
           "  return model;\n}\n\n";
  }

 private:
  bool is_common(std::string_view key) const {
    return has(kSizes, key) || has(kReals, key) || has(kWithoutDefault, key) ||
           key == "tie_word_embeddings" || (rotary_read_ && has(kRotary, key));
  }

  void set(std::string_view member, const std::string& value) {
    defaults_ += "    " + std::string(member) + " = " + value + ";\n";
  }

  void read_common() {
    for (const auto& [key, value] : keys_.entries()) {
      if (value.is_null()) continue;
      if (has(kSizes, key)) set(key, std::to_string(value.as_integer()));
      if (has(kReals, key)) set(key, literal(Node::real(value.as_real())));
      if (key == "tie_word_embeddings") set(key, value.as_boolean() ? "true" : "false");
    }
    const auto declare_if = [&](const char* key, const char* function) {
      if (keys_.find(key) != nullptr) declarations_ += std::string("  decoder::") + function + "(keys);\n";
    };
    declare_if("head_dim", "add_head_dim");
    declare_if("rms_norm_eps", "add_rms_norm");
    declare_if("attention_dropout", "add_dropout");
  }

  // Rotary keys that the model library does not support become fields.
  void read_rotary() {
    const int64_t heads = model::size_or(keys_, "num_attention_heads", 32);
    const int64_t head_dim =
        model::size_or(keys_, "head_dim", model::size_or(keys_, "hidden_size", 4096) / heads);
    bool partial = false;
    for (const Node* map : {&keys_, keys_.find("rope_parameters"), keys_.find("rope_scaling")})
      partial = partial || (map != nullptr && model::given(*map, "partial_rotary_factor") != nullptr);
    RotaryKeys rotary;
    try {
      decoder::read_rotary(
          keys_, rotary,
          {model_type_, head_dim, model::size_or(keys_, "max_position_embeddings", 2048), partial});
    } catch (const Error&) {
      return;
    }
    rotary_read_ = true;
    const RotaryKeys usual;
    if (rotary.theta != usual.theta) set("rotary.theta", literal(Node::real(rotary.theta)));
    if (rotary.part != usual.part) set("rotary.part", literal(Node::real(rotary.part)));
    if (!(rotary.scaling == usual.scaling)) set("rotary.scaling", scaling_text(rotary.scaling));
    declarations_ += "  decoder::add_rotary(keys, " + text::quoted(model_type_) +
                     (partial ? ", {.partial = true}" : "") + ");\n";
  }

  void add_field(const std::string& key, const std::string& member, const std::string& help,
                 const std::string& options = "") {
    declarations_ += "  keys.field(" + text::quoted(key) + ", &Keys::" + member + ",\n             " +
                     text::quoted(help) + options + ");\n";
  }

  // Adds a key that has the usual meaning, and what it describes. Returns false for another key or value.
  bool add_used(const std::string& key, const Node& value) {
    const bool is_boolean = value.kind() == Node::Kind::boolean;
    const std::string text = literal(value);
    if (key == "hidden_act" && value.kind() == Node::Kind::text && is_activation(value.as_text())) {
      members_ += "  std::string hidden_act = " + text + ";\n";
      add_field(key, key, "Activation function of the MLP.", ", decoder::activation_words()");
      activation_ = "decoder::activation_of(keys.hidden_act)";
    } else if (key == "attention_bias" && is_boolean) {
      members_ += "  bool attention_bias = " + text + ";\n";
      add_field(key, key, "Whether q, k, v and o have biases.");
      attention_ += "  attention.qkv_bias = attention.output_bias = keys.attention_bias;\n";
    } else if (key == "mlp_bias" && is_boolean) {
      members_ += "  bool mlp_bias = " + text + ";\n";
      add_field(key, key, "Whether the MLP has biases.");
      mlp_ += "  mlp.bias = keys.mlp_bias;\n";
    } else if (key == "final_logit_softcapping" &&
               (value.is_null() || value.kind() == Node::Kind::real || value.kind() == Node::Kind::integer)) {
      members_ +=
          "  std::optional<double> final_logit_softcapping" + (value.is_null() ? "" : " = " + text) + ";\n";
      add_field(key, key, "Soft cap of the logits. null: no cap.", ", heddle::at_least(1e-38)");
      model_ += "  model.logits_soft_cap = keys.final_logit_softcapping.value_or(0);\n";
    } else {
      return false;
    }
    return true;
  }

  static bool is_activation(const std::string& word) {
    const std::vector<std::string>& words = decoder::activation_words().words;
    return std::find(words.begin(), words.end(), word) != words.end();
  }

  void add_unused(const std::string& key, const Node& value) {
    const std::string type = type_of(value);
    if (type.empty()) {
      const std::string node =
          value.is_null()
              ? "heddle::Node()"
              : "heddle::config::read_text(" + text::quoted(config::to_json(value)) + ", \"config.json\")";
      declarations_ += "  keys.only(" + text::quoted(key) + ", " + node +
                       ",\n            \"Only this value is supported.\");\n";
      return;
    }
    if (unused_members_.empty())
      unused_members_ =
          "  // Keys that no layer uses yet. Use each in model_of(), or declare it with keys.unused() or "
          "keys.only().\n";
    const std::string member = member_name(key);
    unused_members_ += "  " + type + " " + member + " = " + literal(value) + ";\n";
    add_field(key, member, "No effect yet.");
  }

  const Node& keys_;
  const std::string& model_type_;
  bool rotary_read_ = false;
  std::string defaults_, members_, unused_members_, declarations_;
  std::string attention_, activation_, mlp_, model_;  // lines of model_of()
};

bool is_name(const std::string& word, std::string_view also) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || also.find(c) != also.npos;
  });
}

// Throws unless the keys are those of a decoder with Llama's names.
void check_decoder(const Node& keys) {
  if (model::given(keys, "hidden_size") != nullptr && model::given(keys, "num_attention_heads") != nullptr &&
      model::given(keys, "num_hidden_layers") != nullptr)
    return;
  const Node* text = keys.find("text_config");
  model::refuse(keys,
                "hidden_size, num_hidden_layers or num_attention_heads is missing; --from-hf starts families "
                "whose keys have Llama's names",
                text != nullptr && text->is_map()
                    ? "copy the map text_config into a file of its own, and name that file"
                    : "start without --from-hf, and write the keys by hand");
}

}  // namespace

FamilyStart read_family_start(const std::filesystem::path& path) {
  FamilyStart out;
  out.file = std::filesystem::is_directory(path) ? path / "config.json" : path;
  const Node keys = checkpoint::read_config_json(out.file);
  const Node* type = model::given(keys, "model_type");
  if (type == nullptr)
    model::refuse(keys, "model_type is missing", "add the model_type that the family reads");
  out.model_type = type->as_text();
  if (!is_name(out.model_type, "_-."))
    model::refuse(*type, "expected letters, digits, _, - and ., got " + type->written(),
                  "give a copy of the file another model_type");
  check_decoder(keys);
  if (const Node* classes = model::given(keys, "architectures");
      classes != nullptr && classes->size() > 0 && classes->items()[0].kind() == Node::Kind::text &&
      is_name(classes->items()[0].as_text(), "_"))
    out.architecture = classes->items()[0].as_text();
  out.source = FamilyWriter(keys, out.model_type).source();
  return out;
}

}  // namespace heddle::cli
