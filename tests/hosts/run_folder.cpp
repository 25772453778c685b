// Recipe of the tests, a reader of safetensors files, and comparisons of runs.
#include "run_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "heddle/config/node.h"

namespace hosts {

const char* const kLlama =
    "{config: {model_type: llama, vocab_size: 256, hidden_size: 32, intermediate_size: 64, "
    "num_hidden_layers: "
    "4, num_attention_heads: 4, max_position_embeddings: 64}, dtype: float32}";
const char* const kMixture =
    "{config: {model_type: qwen3_moe, vocab_size: 256, hidden_size: 32, intermediate_size: 64, "
    "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, num_experts: 8, "
    "num_experts_per_tok: 2, moe_intermediate_size: 16, norm_topk_prob: true, max_position_embeddings: 64}, "
    "dtype: float32}";

namespace {

constexpr const char* kRecipe = R"(seed: 42
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 3}
model: MODEL
dataset: {_target_: MockIterableDataset, vocab_size: 256, seq_len: 32, num_samples: 4096}
optimizer: {lr: 0.001, weight_decay: 0.1}
distributed: {strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}}
checkpoint: {checkpoint_dir: FOLDER/run, save_consolidated: final}
)";

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  return text.replace(text.find(word), word.size(), by);
}

// Header of a safetensors file and the tensor bytes.
struct TensorFile {
  heddle::Node header;
  std::string bytes;
};

TensorFile read_tensor_file(const std::filesystem::path& file) {
  const std::string all = flow::read_text(file);
  uint64_t size = 0;
  if (all.size() < sizeof size) throw std::runtime_error(file.string() + " is too short");
  std::memcpy(&size, all.data(), sizeof size);
  const std::string header = all.substr(sizeof size, size);
  return {heddle::config::read_text(header, file.string()), all.substr(sizeof size + size)};
}

template <class Visit>
void for_each_tensor_file(const std::string& directory, const Visit& visit) {
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".safetensors") visit(entry.path());
}

void expect_near(double value, double expected, double tolerance, const std::string& name) {
  EXPECT_LE(std::abs(value - expected), tolerance * std::max(1.0, std::abs(expected)))
      << name << ": " << value << ", expected " << expected;
}

}  // namespace

RunFolder::RunFolder() {
  std::string place = (std::filesystem::temp_directory_path() / "heddle_runs_XXXXXX").string();
  if (mkdtemp(place.data()) == nullptr) throw std::runtime_error("cannot create " + place);
  folder_ = place;
  write("run.yaml", replaced(replaced(kRecipe, "MODEL", kLlama), "FOLDER", folder_.string()));
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  std::filesystem::create_directories((folder_ / name).parent_path());
  std::ofstream(folder_ / name, std::ios::binary) << text;
}

flow::Words RunFolder::save_in(const std::string& run, const flow::Words& more) const {
  return flow::plus({"--checkpoint.checkpoint_dir", path(run)}, more);
}

void RunFolder::train_alone(const flow::Words& words) const {
  const flow::Outcome outcome = flow::heddle(flow::plus({"train", recipe()}, words));
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
}

std::map<std::string, std::vector<float>> read_tensors(const std::string& directory) {
  std::map<std::string, std::vector<float>> tensors;
  for_each_tensor_file(directory, [&](const std::filesystem::path& file) {
    const TensorFile read = read_tensor_file(file);
    for (const auto& [name, entry] : read.header.entries()) {
      if (name == "__metadata__") continue;
      if (entry.find("dtype")->as_text() != "F32") throw std::runtime_error(name + " is not float32");
      const auto& range = entry.find("data_offsets")->items();
      const int64_t begin = range[0].as_integer(), end = range[1].as_integer();
      tensors[name].resize((end - begin) / sizeof(float));
      std::memcpy(tensors[name].data(), read.bytes.data() + begin, end - begin);
    }
  });
  return tensors;
}

void write_tensors(const std::string& directory, const std::map<std::string, std::vector<float>>& tensors) {
  for_each_tensor_file(directory, [&](const std::filesystem::path& file) {
    const TensorFile read = read_tensor_file(file);
    const size_t start = std::filesystem::file_size(file) - read.bytes.size();
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    for (const auto& [name, entry] : read.header.entries()) {
      const auto values = tensors.find(name);
      if (values == tensors.end()) continue;
      out.seekp(static_cast<std::streamoff>(start + entry.find("data_offsets")->items()[0].as_integer()));
      out.write(reinterpret_cast<const char*>(values->second.data()),
                static_cast<std::streamsize>(values->second.size() * sizeof(float)));
    }
  });
}

void expect_equal_runs(const std::string& run, const std::string& expected, double tolerance) {
  for (const char* key : {"loss", "grad_norm"}) {
    const auto values = flow::column(run + "/training.jsonl", key);
    const auto wanted = flow::column(expected + "/training.jsonl", key);
    ASSERT_EQ(values.size(), wanted.size()) << key;
    ASSERT_GE(values.size(), 3u) << key;
    for (size_t step = 0; step < values.size(); ++step)
      expect_near(values[step], wanted[step], tolerance,
                  std::string(key) + " of step " + std::to_string(step));
  }
  const auto tensors = read_tensors(run + "/LATEST/model/consolidated");
  const auto wanted = read_tensors(expected + "/LATEST/model/consolidated");
  ASSERT_EQ(tensors.size(), wanted.size());
  ASSERT_FALSE(tensors.empty());
  for (const auto& [name, values] : wanted) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    ASSERT_EQ(tensors.at(name).size(), values.size()) << name;
    double furthest = 0;
    for (size_t i = 0; i < values.size(); ++i)
      furthest = std::max(furthest, std::abs(double(tensors.at(name)[i]) - double(values[i])));
    EXPECT_LE(furthest, tolerance) << name;
  }
}

}  // namespace hosts
