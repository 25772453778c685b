// Reads adapter_config.json.
#include <string>

#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/run/model/adapter/adapter.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

bool is_set(const nlohmann::ordered_json& config, const char* key) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null() || *at == false) return false;
  return !(at->is_array() || at->is_object()) || !at->empty();
}

}  // namespace

AdapterConfig read_adapter_config(const fs::path& directory) {
  const fs::path file = directory / kAdapterConfig;
  const nlohmann::ordered_json json = checkpoint::read_hf_json(file);
  const auto type = json.find("peft_type");
  if (type != json.end() && *type != "LORA")
    throw Error(ErrorCode::not_built, file.string(), "peft_type is " + type->dump() + ", and LORA is read",
                "merge it with peft: merge_and_unload().save_pretrained(DIR)");
  // fan_in_fan_out says that weights lie as [in, out]; PEFT goes by the class of the layer, and so do the
  // files.
  for (const char* key : {"alpha_pattern", "lora_bias"})
    if (is_set(json, key))
      throw Error(ErrorCode::not_built, file.string(), std::string(key) + " is not read yet",
                  "merge it with peft: merge_and_unload().save_pretrained(DIR)");
  AdapterConfig out;
  const auto base = json.find("base_model_name_or_path"), alpha = json.find("lora_alpha");
  if (base != json.end() && base->is_string()) out.base = base->get<std::string>();
  if (alpha == json.end() || !alpha->is_number())
    throw Error(ErrorCode::input, file.string(), "has no number lora_alpha", "save it again with peft");
  out.alpha = alpha->get<double>();
  out.by_root = is_set(json, "use_rslora");
  out.by_rows = is_set(json, "use_dora");
  return out;
}

}  // namespace heddle
