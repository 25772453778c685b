// The manifest as JSON, and its checks.
#include "heddle/checkpoint/manifest.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/nesting.h"
#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/checkpoint/safetensors/dtype_names.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "heddle sharded tensors";

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& message,
                         const std::string& hint = "resume from another checkpoint, or copy this one again") {
  throw Error(ErrorCode::input, file.string(), message, hint);
}

// The JSON library would accept 1.5, and 2^64 as a negative number.
std::vector<int64_t> sizes_of(const json& list, const std::string& name, const std::filesystem::path& file) {
  std::vector<int64_t> sizes;
  for (const json& size : list) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
      refuse(file, "tensor " + text::quoted(name) + ": expected a size of 0 or more");
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

SavedTensor tensor_of(const json& entry, const std::string& name, const std::filesystem::path& file) {
  const auto dtype = dtype_named(entry.at("dtype").get<std::string>());
  if (!dtype) refuse(file, "tensor " + text::quoted(name) + ": the dtype is not known");
  SavedTensor tensor{*dtype, sizes_of(entry.at("shape"), name, file), {}};
  if (!countable(tensor.shape))
    refuse(file, "tensor " + text::quoted(name) + ": the shape " + written(tensor.shape) + " is too large");
  std::vector<Box> boxes;
  for (const json& one : entry.at("boxes")) {
    SavedBox box{one.at("file"),
                 one.at("key"),
                 {sizes_of(one.at("offset"), name, file), sizes_of(one.at("size"), name, file)},
                 one.at("sums").get<std::vector<std::string>>()};
    if (!fits(box.box, tensor.shape) || box.file.find('/') != std::string::npos)
      refuse(file, "tensor " + text::quoted(name) + ": a box lies outside its shape or its directory");
    boxes.push_back(box.box);
    tensor.boxes.push_back(std::move(box));
  }
  if (!are_apart(boxes)) refuse(file, "tensor " + text::quoted(name) + ": its boxes overlap");
  return tensor;
}

json parse(const std::filesystem::path& file) {
  refuse_irregular(file, ErrorCode::input);
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse(file, "cannot be read", "is this a checkpoint that was saved to the end?");
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (text::nests_deeper(bytes.view(), text::kDeepest))
    refuse(file, "is not a manifest of a sharded checkpoint");
  json parsed = json::parse(bytes.view(), nullptr, false);
  if (!parsed.is_object() || parsed.value("format", json()) != kFormat)
    refuse(file, "is not a manifest of a sharded checkpoint");
  return parsed;
}

}  // namespace

std::string written(const Manifest& manifest) {
  json out{{"format", kFormat}, {"version", Manifest::kVersion}, {"stretch", Manifest::kStretch}};
  json& tensors = out["tensors"] = json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    json boxes = json::array();
    for (const SavedBox& one : tensor.boxes)
      boxes.push_back({{"file", one.file},
                       {"key", one.key},
                       {"offset", one.box.offset},
                       {"size", one.box.size},
                       {"sums", one.sums}});
    tensors[name] = {{"dtype", name_of_dtype(tensor.dtype)}, {"shape", tensor.shape}, {"boxes", boxes}};
  }
  out["checksum"] = checksum(out.dump());
  return out.dump(1) + "\n";
}

Manifest read_manifest(const std::filesystem::path& file) {
  json parsed = parse(file);
  const json version = parsed.value("version", json());
  if (version != Manifest::kVersion)
    refuse(
        file,
        "has version " + version.dump() + ", this heddle reads version " + std::to_string(Manifest::kVersion),
        "read it with the heddle that wrote it, or a newer one");
  const json sum = parsed.value("checksum", json());
  parsed.erase("checksum");
  if (sum != checksum(parsed.dump())) refuse(file, "was changed after it was written: its checksum differs");
  Manifest manifest;
  manifest.sum = sum.get<std::string>();
  try {
    if (parsed.at("stretch") != Manifest::kStretch) refuse(file, "counts checksums in another length");
    for (const auto& [name, entry] : parsed.at("tensors").items())
      manifest.tensors.emplace(name, tensor_of(entry, name, file));
  } catch (const json::exception& error) {
    refuse(file, "is not a manifest of a sharded checkpoint: " + text::excerpt(error.what(), 400));
  }
  return manifest;
}

}  // namespace heddle::checkpoint
