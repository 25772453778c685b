// A directory with a text, its token file and a configuration of a tiny model.
#include "training_files.h"

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "flow/stops/started.h"

namespace flow {
namespace {

constexpr const char* kRun = R"(seed: 7
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 12, num_epochs: 1}
model:
  config: {model_type: llama, vocab_size: 256, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2,
           num_attention_heads: 3, num_key_value_heads: 1, max_position_embeddings: 32}
  dtype: float32
dataset:
  file_pattern: DIRECTORY/train.bin
  seq_len: 16
optimizer: {lr: 0.003, weight_decay: 0.1}
distributed:
  strategy: fsdp2
  mp_policy: {param_dtype: float32, reduce_dtype: float32}
)";

// Words from a small generator, so that every machine has the same text.
std::string text() {
  const char* words[] = {"warp ", "weft ", "shed ", "reed ", "loom ", "heald ", "beam ", "pick.\n"};
  std::string out;
  for (uint32_t i = 0, state = 1; i < 3000; ++i) {
    state = state * 1664525u + 1013904223u;
    out += words[state >> 29];
  }
  return out;
}

}  // namespace

TrainingFiles::TrainingFiles() {
  std::string place = (std::filesystem::temp_directory_path() / "heddle_train_XXXXXX").string();
  directory_ = mkdtemp(place.data());
  write("text.txt", text());
  write("run.yaml", std::regex_replace(kRun, std::regex("DIRECTORY"), directory_.string()));
  const Outcome made = heddle({"data", path("text.txt"), "--out", path("train.bin")});
  if (made.status != 0) throw std::runtime_error(made.error);
}

TrainingFiles::~TrainingFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void TrainingFiles::write(const std::string& name, const std::string& text) const {
  std::ofstream(directory_ / name, std::ios::binary) << text;
}

std::vector<std::string> TrainingFiles::train(const std::string& run, std::vector<std::string> more) const {
  std::vector<std::string> words = {"train", path("run.yaml"), "--checkpoint.checkpoint_dir", path(run)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<double> column(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  std::vector<double> out;
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find("\"" + key + "\":");
    if (at != std::string::npos) out.push_back(std::stod(line.substr(at + key.size() + 3)));
  }
  return out;
}

std::string without_clock(const std::string& file) {
  const std::regex clock(R"re("(timestamp|mem|tps|tps_per_gpu|mfu|tflops|step_time)":("[^"]*"|[^,}]*))re");
  return std::regex_replace(read_text(file), clock, "");
}

}  // namespace flow
