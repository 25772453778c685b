// Reads and removes quantization_config.
#include "lib/checkpoint/quantized/quantization.h"

#include <system_error>

#include "heddle/base/error.h"
#include "heddle/model/config_keys.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/huggingface/read_config.h"

namespace heddle::checkpoint {
namespace {

constexpr const char *kKey = "quantization_config", *kText = "text_config";
constexpr const char* kExperts = "expert_dtype";  // beside it, or in it: DeepSeek-V4
constexpr const char* kHint = "use a copy of the model in bfloat16";
constexpr int64_t kLargestBlock = int64_t{1} << 28;

[[noreturn]] void refuse(const Node& at, const std::string& what) {
  throw Error(ErrorCode::input, at.where(), what, kHint);
}

// A list of two sizes, [rows, columns].
void read_block(const Node& size, Quantization& out) {
  if (size.is_null())
    refuse(size, "weights in fp8 with one scale for a whole tensor (weight_block_size null) are not built");
  bool right = size.is_list() && size.size() == 2;
  for (const Node& one : size.items())
    right = right && one.kind() == Node::Kind::integer && one.as_integer() >= 1 &&
            one.as_integer() <= kLargestBlock;
  if (!right) refuse(size, "expected two sizes of a block, such as [128, 128], got " + config::to_json(size));
  out.block_rows = size.items()[0].as_integer();
  out.block_columns = size.items()[1].as_integer();
}

std::optional<Quantization> mxfp4(bool packed) {
  Quantization out;
  out.method = Quantization::Method::mxfp4;
  out.packed = packed;
  return out;
}

// Reads the quantization from the keys of this level only.
std::optional<Quantization> form_of(const Node& config_json) {
  const Node* keys = model::given(config_json, kKey);
  const Node* method = keys == nullptr || !keys->is_map() ? nullptr : model::given(*keys, "quant_method");
  if (method == nullptr || method->kind() != Node::Kind::text) return std::nullopt;
  const Node* format = model::given(*keys, "format");
  const bool packed = method->as_text() == "compressed-tensors" && format != nullptr &&
                      *format == Node::text("mxfp4-pack-quantized");
  if (packed || method->as_text() == "mxfp4") return mxfp4(packed);
  if (method->as_text() != "fp8") return std::nullopt;
  Quantization out;
  const Node* fmt = model::given(*keys, "fmt");
  if (fmt != nullptr && !(*fmt == Node::text("e4m3")))
    refuse(*fmt, "weights in the format " + fmt->written() + " are not built; known: e4m3");
  if (const Node* size = keys->find("weight_block_size")) read_block(*size, out);
  for (const Node* place : {keys, &config_json})
    if (const Node* experts = model::given(*place, kExperts);
        experts != nullptr && !(*experts == Node::text("fp4")) && !(*experts == Node::text("fp8")))
      refuse(*experts, "experts in " + experts->written() + " are not built; known: fp4, fp8");
  return out;
}

// The keys of the text of a model of text and images; null: there are none.
const Node* text_of(const Node& config_json) {
  const Node* text = model::given(config_json, kText);
  return text == nullptr || !text->is_map() ? nullptr : text;
}

}  // namespace

const char* Quantization::name() const {
  return method == Method::fp8 ? "fp8" : "mxfp4";
}

std::optional<Quantization> quantization_of(const Node& config_json) {
  if (const auto form = form_of(config_json)) return form;
  const Node* text = text_of(config_json);
  return text == nullptr ? std::nullopt : form_of(*text);
}

std::optional<Quantization> quantization_in(const std::filesystem::path& directory) {
  std::error_code ignored;
  const std::filesystem::path file = directory / "config.json";
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  return quantization_of(read_config_json(file));
}

Node without_quantization(const Node& config_json) {
  const Node* text = text_of(config_json);
  const Node out = text == nullptr || !form_of(*text)
                       ? config_json
                       : config_json.without(kText).with(kText, text->without(kKey));
  return form_of(config_json) ? out.without(kKey).without(kExperts) : out;
}

std::string without_quantization(const std::string& config_json) {
  const Node given = parse_config_json(config_json, "config.json");
  if (!quantization_of(given)) return config_json;
  auto keys = parse_hf_json(config_json, "config.json");
  if (form_of(given)) keys.erase(kKey), keys.erase(kExperts);
  if (const Node* text = text_of(given); text != nullptr && form_of(*text)) keys[kText].erase(kKey);
  return write_hf_json(keys) + "\n";
}

}  // namespace heddle::checkpoint
