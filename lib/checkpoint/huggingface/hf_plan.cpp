// Files, dtypes and offsets of an export.
#include "lib/checkpoint/huggingface/hf_plan.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/base/pattern.h"
#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/hf_json.h"

namespace heddle::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string hf_dtype_name(c10::ScalarType dtype) {
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

// The text, with dtype (and torch_dtype, if present) updated if the tensors have another dtype. Readable by
// transformers 4: with torch_dtype beside dtype, and rope_theta and rope_scaling beside rope_parameters.
// Throws Error{input} for a text that is not a JSON object.
std::string config_for(const std::string& config_json, std::optional<c10::ScalarType> dtype,
                       HfChoice::Config keys) {
  OrderedJson config = parse_hf_json(config_json, "config.json");
  if (!config.is_object()) throw Error(ErrorCode::input, "config.json", "is not a JSON object");
  const std::string before = write_hf_json(config);
  const std::string word = dtype ? hf_dtype_name(*dtype) : "";
  const OrderedJson said =
      config.contains("dtype") ? config["dtype"] : config.value("torch_dtype", OrderedJson());
  // Without a dtype readers use that of the tensors; heddle then assumes float32.
  if (!word.empty() && said != word && !(said.is_null() && word == "float32")) say_dtype(config, word);
  if (keys == HfChoice::Config::readable_by_v4) add_older_keys(config);
  const std::string after = write_hf_json(config);
  return after == before ? config_json : after + "\n";
}

using enum c10::ScalarType;
using nlohmann::ordered_json;

constexpr uint64_t kMostBytes = uint64_t{5} << 30;
constexpr const char* kSingle = "model.safetensors";

// The order in which safetensors' writers sort dtypes, so that every tensor is aligned.
constexpr std::array<c10::ScalarType, 16> kLargestFirst = {
    UInt64, Long,  Double,        Float,       UInt32,         Int,  BFloat16, Half,
    UInt16, Short, Float8_e4m3fn, Float8_e5m2, Float8_e8m0fnu, Char, Byte,     Bool};

size_t rank_of(c10::ScalarType dtype) {
  return static_cast<size_t>(std::find(kLargestFirst.begin(), kLargestFirst.end(), dtype) -
                             kLargestFirst.begin());
}

// Eight-bit floats belong to a quantization and are not converted: they need their scales.
bool is_real(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) && c10::elementSize(dtype) > 1;
}

// The dtype of a tensor that the original lacks: the most common real dtype of its tensors.
std::optional<c10::ScalarType> common_dtype(const HfOrigin& origin) {
  std::map<c10::ScalarType, size_t> count;
  for (const auto& [name, tensor] : origin.tensors)
    if (is_real(tensor.dtype)) ++count[tensor.dtype];
  const auto most = std::max_element(count.begin(), count.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == count.end() ? std::nullopt : std::optional(most->first);
}

// The form in which a tensor is written: that of the original unless the options override it.
class Tensors {
 public:
  Tensors(const HfOrigin& origin, const HfChoice& choice)
      : origin_(origin), choice_(choice), common_(common_dtype(origin)) {}

  // own_dtype: rounding would change what the model computes; the tensor is written as it is saved.
  TensorToWrite tensor(const std::string& name, c10::ScalarType saved, const std::vector<int64_t>& shape,
                       bool own_dtype) const {
    const auto original = origin_.tensors.find(name);
    c10::ScalarType dtype = saved;
    if (own_dtype) return {name, dtype, shape};
    if (choice_.dtype && is_real(saved)) {
      dtype = *choice_.dtype;
    } else if (original != origin_.tensors.end()) {
      dtype = original->second.dtype;
    } else if (common_ && is_real(saved)) {
      dtype = *common_;
    }
    return {name, dtype, shape};
  }

 private:
  const HfOrigin& origin_;
  const HfChoice& choice_;
  std::optional<c10::ScalarType> common_;
};

std::vector<TensorToWrite> tensors_of(const Manifest& manifest, const Tensors& as, const ModelSpec* model,
                                      HfLayout& layout) {
  std::vector<TensorToWrite> out;
  std::map<std::string, InModel> places;
  if (model != nullptr) places = places_of(*model);
  const auto in_model = [&](const std::string& parameter) {
    const auto found = places.find(parameter);
    return found == places.end() ? InModel{places.size()} : found->second;
  };
  for (const auto& [name, saved] : manifest.tensors)
    if (model == nullptr || !add_to(layout, *model, name, saved.shape))
      out.push_back(as.tensor(name, saved.dtype, saved.shape, in_model(name).own_dtype));
  check_whole(layout);
  for (const auto& [name, pieces] : layout) {
    const std::string& first = pieces.front().parameter;
    out.push_back(as.tensor(name, manifest.tensors.at(first).dtype, pieces.front().part.shape,
                            in_model(first).own_dtype));
  }
  const auto place = [&](const std::string& tensor) {  // by the first parameter of a tensor
    const auto made = layout.find(tensor);
    return in_model(made == layout.end() ? tensor : made->second.front().parameter).index;
  };
  std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) {
    const size_t first = place(a.name), second = place(b.name);
    return first != second ? first < second : comes_before(a.name, b.name);
  });
  return out;
}

std::string numbered(const std::string& prefix, size_t number, size_t count, const std::string& ending) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu", number, count);
  return prefix + text + ending;
}

std::vector<HfFile> by_size(const std::vector<TensorToWrite>& tensors, uint64_t limit) {
  std::vector<HfFile> files;
  uint64_t filled = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (files.empty() || filled + tensor.bytes() > limit) {
      files.emplace_back();
      filled = 0;
    }
    filled += tensor.bytes();
    files.back().tensors.push_back(tensor);
  }
  for (size_t i = 0; i < files.size(); ++i)
    files[i].name = files.size() == 1 ? kSingle : numbered("model", i + 1, files.size(), ".safetensors");
  return files;
}

// "model-00002-of-00004.safetensors", and "model.safetensors-00002-of-00004" as some of Qwen's are named.
std::vector<std::string> parts_of(const std::string& file) {
  static const text::Pattern kNumbered("(.+)-([0-9]{1,9})-of-([0-9]{1,9})(\\.safetensors)?");
  return kNumbered.match(file);
}

// File names are renumbered if files of the original would be empty.
void count_through(std::vector<HfFile>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    const std::vector<std::string> parts = parts_of(files[i].name);
    if (parts.empty()) return;
    if (std::stoul(parts[2]) == i + 1 && std::stoul(parts[3]) == files.size()) continue;
    for (size_t j = 0; j < files.size(); ++j)
      if (const auto old = parts_of(files[j].name); !old.empty())
        files[j].name = numbered(old[1], j + 1, files.size(), old[4]);
    return;
  }
}

std::vector<HfFile> as_original(const std::vector<TensorToWrite>& tensors, const HfOrigin& origin) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : origin.tensors) names.push_back(tensor.file);
  std::sort(names.begin(), names.end(), comes_before);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<HfFile> files(names.size());
  for (size_t i = 0; i < files.size(); ++i) files[i].name = names[i];
  for (const TensorToWrite& tensor : tensors) {
    const auto original = origin.tensors.find(tensor.name);
    const std::string& file = original == origin.tensors.end() ? names.back() : original->second.file;
    const auto place = std::find(names.begin(), names.end(), file) - names.begin();
    files[static_cast<size_t>(place)].tensors.push_back(tensor);
  }
  std::erase_if(files, [](const HfFile& file) { return file.tensors.empty(); });
  count_through(files);
  return files;
}

// Sorted, as transformers writes it; the original's metadata other than sizes is kept.
std::string index_of(const std::vector<HfFile>& files, const std::string& original) {
  uint64_t bytes = 0, numbers = 0;
  std::map<std::string, std::string> file_of;
  for (const HfFile& file : files)
    for (const TensorToWrite& tensor : file.tensors) {
      bytes += tensor.bytes();
      numbers += tensor.bytes() / c10::elementSize(tensor.dtype);
      file_of[tensor.name] = file.name;
    }
  ordered_json metadata = original.empty() ? ordered_json{{"total_parameters", 0}, {"total_size", 0}}
                                           : parse_hf_json(original, "the index");
  if (!metadata.is_object()) metadata = ordered_json::object();
  if (metadata.contains("total_parameters")) metadata["total_parameters"] = numbers;
  if (metadata.value("total_size", ordered_json()) != bytes) metadata["total_size"] = bytes;
  return write_hf_json({{"metadata", metadata}, {"weight_map", file_of}}) + "\n";
}

// The dtype of most bytes that are real numbers.
std::optional<c10::ScalarType> written_dtype(const std::vector<HfFile>& files) {
  std::map<c10::ScalarType, uint64_t> bytes;
  for (const HfFile& file : files)
    for (const TensorToWrite& tensor : file.tensors)
      if (is_real(tensor.dtype)) bytes[tensor.dtype] += tensor.bytes();
  const auto most = std::max_element(bytes.begin(), bytes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? std::nullopt : std::optional(most->first);
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// Moves past the number at `at` and sets `value`; leading zeros are ignored.
size_t number_at(const std::string& text, size_t at, std::string& value) {
  size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  while (at + 1 < end && text[at] == '0') ++at;
  value = text.substr(at, end - at);
  return end;
}

}  // namespace

uint64_t HfFile::bytes() const {
  uint64_t total = header.size();
  for (const TensorToWrite& tensor : tensors) total += tensor.bytes();
  return total;
}

bool comes_before(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  std::string number_a, number_b;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      i = number_at(a, i, number_a);
      j = number_at(b, j, number_b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  if ((i == a.size()) != (j == b.size())) return i == a.size();
  return a < b;
}

HfPlan plan_hf(const Manifest& manifest, const HfOrigin& origin, const HfChoice& choice,
               const ModelSpec* model) {
  HfPlan plan;
  const std::vector<TensorToWrite> tensors =
      tensors_of(manifest, Tensors(origin, choice), model, plan.layout);
  const bool by_name = !choice.max_file_bytes && !origin.tensors.empty();
  plan.files =
      by_name ? as_original(tensors, origin) : by_size(tensors, choice.max_file_bytes.value_or(kMostBytes));
  for (HfFile& file : plan.files) {
    std::sort(file.tensors.begin(), file.tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
      return std::pair(rank_of(a.dtype), std::string_view(a.name)) <
             std::pair(rank_of(b.dtype), std::string_view(b.name));
    });
    file.header = header_of(file.tensors, file.name);
  }
  const bool single = plan.files.size() == 1 && plan.files[0].name == kSingle;
  if (!plan.files.empty() && !single) plan.index = index_of(plan.files, origin.index);
  const auto config = origin.files.find("config.json");
  if (config != origin.files.end())
    plan.config = config_for(config->second, written_dtype(plan.files), choice.config);
  return plan;
}

}  // namespace heddle::checkpoint
