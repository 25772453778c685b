// The config.json of an export.
#include "lib/checkpoint/huggingface/hf_config.h"

#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/hf_json.h"

namespace heddle::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string word_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::Double:
      return "float64";
    default:
      return "";
  }
}

void say_dtype(OrderedJson& config, const std::string& word) {
  if (config.contains("torch_dtype")) config["torch_dtype"] = word;
  if (config.contains("dtype") || !config.contains("torch_dtype")) config["dtype"] = word;
}

// transformers 5 reads rope_parameters and dtype, transformers 4 the others.
void add_older_keys(OrderedJson& config) {
  if (config.contains("dtype") && !config.contains("torch_dtype")) config["torch_dtype"] = config["dtype"];
  if (!config.contains("rope_parameters") || !config["rope_parameters"].is_object()) return;
  const OrderedJson& rope = config["rope_parameters"];
  const bool plain = rope.value("rope_type", OrderedJson("default")) == "default";
  if (rope.contains("rope_theta") && !config.contains("rope_theta"))
    config["rope_theta"] = rope["rope_theta"];
  if (!config.contains("rope_scaling")) config["rope_scaling"] = plain ? OrderedJson() : rope;
}

}  // namespace

std::string config_for(const std::string& config_json, std::optional<c10::ScalarType> dtype,
                       HfChoice::Config keys) {
  OrderedJson config = parse_hf_json(config_json, "config.json");
  if (!config.is_object()) throw Error(ErrorCode::input, "config.json", "is not a JSON object");
  const std::string before = write_hf_json(config);
  const std::string word = dtype ? word_of(*dtype) : "";
  const OrderedJson said =
      config.contains("dtype") ? config["dtype"] : config.value("torch_dtype", OrderedJson());
  // Without a dtype readers use that of the tensors; heddle then assumes float32.
  if (!word.empty() && said != word && !(said.is_null() && word == "float32")) say_dtype(config, word);
  if (keys == HfChoice::Config::readable_by_v4) add_older_keys(config);
  const std::string after = write_hf_json(config);
  return after == before ? config_json : after + "\n";
}

}  // namespace heddle::checkpoint
