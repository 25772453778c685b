// Fuzzing targets for tensor files: safetensors files, Hugging Face indices and checkpoint manifests.
#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "fuzz/asked_box.h"
#include "fuzz/checksummed.h"
#include "fuzz/files.h"
#include "fuzz/targets.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "lib/checkpoint/huggingface/hf_plan.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle::fuzz {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kShard = "a.safetensors";

// Reads both ends of each tensor in its stored dtype and as float32.
template <class Read>
void read_ends(const std::vector<int64_t>& shape, at::ScalarType dtype, const Read& read) {
  for (const bool end : {false, true})
    for (const at::ScalarType as : {dtype, at::kFloat}) {
      if (as != dtype && at::isComplexType(dtype)) continue;  // converting complex to real warns
      read(asked_box(shape, as, end));
    }
}

// Replaces checksums by those of the shard, so that a mutated manifest passes the checksum test.
void repair_sums(json& parsed, const SafetensorsFile& shard) {
  for (json& tensor : parsed["tensors"])
    for (json& box : tensor.at("boxes")) {
      const auto found = shard.tensors().find(box.value("key", ""));
      if (found != shard.tensors().end()) box["sums"] = {checkpoint::checksum(shard.bytes(found->first))};
    }
}

std::string repaired(std::string_view text, const std::filesystem::path& shard) {
  json parsed = parsed_object(text);
  if (parsed.is_null()) return std::string(text);
  try {
    repair_sums(parsed, SafetensorsFile(shard));
  } catch (const std::exception&) {
    // The reader reports the same error.
  }
  return checksummed(parsed.dump());
}

void read_sharded(std::string_view text) {
  files().write(checkpoint::kManifest, text);
  try {
    checkpoint::ShardedReader reader(files().root());
    for (const auto& [name, tensor] : reader.manifest().tensors) {
      try {
        read_ends(tensor.shape, tensor.dtype, [&, &name = name, &tensor = tensor](AskedBox box) {
          reader.read({name, box.tensor, tensor.shape, box.offset});
        });
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace

void safetensors(std::string_view bytes) {
  try {
    const SafetensorsFile file(files().write(kShard, bytes));
    uint64_t held = 0;
    for (const auto& [name, stored] : file.tensors()) {
      held += file.bytes(name).size();
      read_ends(stored.shape, stored.dtype,
                [&, &name = name](const AskedBox& box) { file.read(name, box.offset, box.tensor); });
    }
    if (held > bytes.size()) std::abort();
  } catch (const Error&) {
  }
}

void hf_index(std::string_view bytes) {
  const auto [index, shard] = two_files(bytes);
  files().write("model.safetensors.index.json", index);
  files().write(kShard, shard);
  try {
    const HfWeights weights(files().root());
    for (const std::string& name : weights.names()) {
      const StoredTensor& stored = weights.at(name);
      read_ends(stored.shape, stored.dtype,
                [&](const AskedBox& box) { weights.read(name, box.offset, box.tensor); });
    }
  } catch (const Error&) {
  }
}

// The metadata of an export: file names, dtypes and the metadata of the index.
void hf_notes(std::string_view bytes) {
  const auto [tensors, config] = two_files(bytes);
  files().write("tensors.json", tensors);
  files().write("config.json", config);
  try {
    const checkpoint::HfOrigin origin = checkpoint::kept_origin(files().root());
    checkpoint::Manifest saved{{{"more", {at::kFloat, {2, 3}, {}}}}, ""};
    for (const auto& [name, tensor] : origin.tensors) saved.tensors.insert({name, {at::kHalf, {3}, {}}});
    size_t planned = 0;
    for (const checkpoint::HfFile& file : checkpoint::plan_hf(saved, origin, {}).files)
      planned += file.tensors.size();
    if (planned != saved.tensors.size()) std::abort();
    if (origin.tensors.empty()) return;
    checkpoint::keep_origin(files().root() / "again", origin);
    const checkpoint::HfOrigin again = checkpoint::kept_origin(files().root() / "again");
    if (again.tensors != origin.tensors || again.index != origin.index) std::abort();
  } catch (const Error&) {
  }
}

void manifest(std::string_view bytes) {
  const auto [text, shard] = two_files(bytes);
  const std::filesystem::path file = files().write(kShard, shard);
  read_sharded(text);
  read_sharded(repaired(text, file));
}

}  // namespace heddle::fuzz
