// The weights of a Hugging Face directory: one file, or several with an index.
#include <fstream>
#include <iterator>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/safetensors.h"
#include "lib/checkpoint/huggingface/hf_json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWholeFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string read_text(const fs::path& file) {
  refuse_irregular(file, ErrorCode::input);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Error(ErrorCode::input, file.string(), "cannot be read");
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::map<std::string, std::string> read_index(const fs::path& file, const std::string& bytes) {
  const auto index = checkpoint::hf_json_if_valid(bytes);
  if (!index || !index->is_object() || !index->contains("weight_map") || !index->at("weight_map").is_object())
    throw Error(ErrorCode::input, file.string(), "is not JSON with a weight_map");
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : index->at("weight_map").items()) {
    const std::string shard = value.is_string() ? value.get<std::string>() : "";
    if (shard.empty() || fs::path(shard).filename() != fs::path(shard))
      throw Error(
          ErrorCode::input, file.string(),
          "tensor " + text::quoted(name) + ": expected the name of a file beside it, got " + value.dump());
    out.emplace(name, shard);
  }
  return out;
}

}  // namespace

HfWeights::HfWeights(const fs::path& directory) {
  if (fs::exists(directory / kWholeFile)) {
    files_.emplace_back(directory / kWholeFile);
    file_names_ = {kWholeFile};
    for (const auto& [name, stored] : files_[0].tensors()) file_of_.emplace(name, 0);
    return;
  }
  const fs::path index = directory / kIndex;
  if (!fs::exists(index))
    throw Error(ErrorCode::input, directory.string(),
                std::string("holds neither ") + kWholeFile + " nor " + kIndex,
                "name a Hugging Face directory with safetensors weights");
  index_ = read_text(index);
  std::map<std::string, size_t> opened;
  for (const auto& [name, shard] : read_index(index, index_)) {
    if (!opened.count(shard)) {
      opened.emplace(shard, files_.size());
      files_.emplace_back(directory / shard);
      file_names_.push_back(shard);
    }
    const size_t number = opened.at(shard);
    if (!files_[number].tensors().count(name))
      throw Error(ErrorCode::input, (directory / shard).string(),
                  "holds no tensor " + text::quoted(name) + ", but the index says it does",
                  "download the index and the weights again");
    file_of_.emplace(name, number);
  }
}

bool HfWeights::has(const std::string& name) const {
  return file_of_.count(name) != 0;
}

const StoredTensor& HfWeights::at(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end())
    throw Error(ErrorCode::input, "the weights", "hold no tensor " + text::quoted(name));
  return files_[found->second].tensors().at(name);
}

std::string_view HfWeights::bytes(const std::string& name) const {
  this->at(name);
  return files_[file_of_.at(name)].bytes(name);
}

const std::string& HfWeights::file(const std::string& name) const {
  this->at(name);
  return file_names_[file_of_.at(name)];
}

void HfWeights::read(const std::string& name, std::span<const int64_t> offset, at::Tensor out) const {
  this->at(name);
  files_[file_of_.at(name)].read(name, offset, std::move(out));
}

std::vector<std::string> HfWeights::names() const {
  std::vector<std::string> out;
  for (const auto& [name, file] : file_of_) out.push_back(name);
  return out;
}

}  // namespace heddle
