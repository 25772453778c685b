// heddle_kills [KILLS [SEED]]: kills runs that save after every step with SIGKILL, at random file operations
// and at random microseconds after them, one rank or all ranks, and resumes each run or lets its launcher
// restart it. The first argument `experts` trains a mixture of experts on four ranks, which is also resumed
// at other topologies. The first argument `faults` makes disks fail.
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "chain.h"
#include "ends.h"
#include "faults.h"
#include "moves.h"
#include "restarts.h"

namespace kills {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecipe = R"(
seed: 7
model:
  config: {model_type: llama, vocab_size: 53, hidden_size: 15, intermediate_size: 23, num_hidden_layers: 2,
           num_attention_heads: 3, num_key_value_heads: 1, head_dim: 6, max_position_embeddings: 16}
  dtype: float32
optimizer: {lr: 0.01, weight_decay: 0.1}
step_scheduler: {global_batch_size: 6, local_batch_size: 3, max_steps: 30, num_epochs: null, ckpt_every_steps: 1, val_every_steps: 1}
)";

constexpr const char* kMixture = R"(
seed: 7
model:
  config: {model_type: qwen3_moe, vocab_size: 53, hidden_size: 14, intermediate_size: 23, num_hidden_layers: 2,
           num_attention_heads: 2, num_key_value_heads: 1, head_dim: 6, max_position_embeddings: 16, num_experts: 4,
           num_experts_per_tok: 2, moe_intermediate_size: 5, norm_topk_prob: true, router_aux_loss_type: sequence}
  dtype: float32
optimizer: {lr: 0.01, weight_decay: 0.1}
step_scheduler: {global_batch_size: 12, local_batch_size: 3, max_steps: 30, num_epochs: null, ckpt_every_steps: 1}
)";

std::vector<Training> trainings(const fs::path& folder) {
  const std::string recipe =
      kRecipe + ("dataset: {seq_len: 7, file_pattern: " + (folder / "train.bin").string() + "}\n");
  const std::string fsdp =
      "distributed: {strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}}\n";
  const std::string latest =
      "checkpoint: {max_recent_checkpoints: 2, restore_from: LATEST}\n"
      "validation_dataset: {seq_len: 7, file_pattern: " +
      (folder / "validation.bin").string() + "}\n";
  return {{"one rank", 1, recipe + "distributed: {strategy: single}\n"},
          {"two ranks", 2, recipe + fsdp},
          {"two ranks that keep two checkpoints and the best and resume from LATEST", 2,
           recipe + fsdp + latest, 2},
          {"two ranks that save beside their steps", 2, recipe + fsdp + "checkpoint: {is_async: true}\n", 0}};
}

// Four experts, sharded over ep. All other parameters are replicated.
Training mixture(const fs::path& folder, int ranks, int ep) {
  Training out{std::to_string(ranks) + " ranks with ep " + std::to_string(ep), ranks, kMixture};
  out.yaml += "dataset: {seq_len: 7, file_pattern: " + (folder / "train.bin").string() + "}\n";
  out.yaml += "distributed: {strategy: fsdp2, ep_size: " + std::to_string(ep) +
              ", mp_policy: {param_dtype: float32, reduce_dtype: float32}}\n";
  return out;
}

void write_tokens(const fs::path& file, int32_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520, header[1] = 1, header[2] = count;
  std::vector<uint16_t> tokens;
  for (uint32_t i = 0, state = 1; i < static_cast<uint32_t>(count); ++i)
    tokens.push_back(static_cast<uint16_t>(((state = state * 1664525u + 1013904223u) >> 16) % 53));
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), static_cast<std::streamsize>(header.size() * 4));
  out.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * 2));
}

// Returns a directory in memory if there is one. SIGKILL loses no data that the kernel has accepted, so a
// disk would show no further errors and only slow down the syncs.
fs::path temporary_folder() {
  const fs::path memory = "/dev/shm";
  std::error_code none;
  return fs::is_directory(memory, none) && ::access(memory.c_str(), W_OK) == 0 ? memory
                                                                               : fs::temp_directory_path();
}

void report(const std::string& done, std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%s (%.0f s)\n", done.c_str(), seconds.count());
  std::fflush(stdout);
}

void kill(const Training& training, const fs::path& place, int kills, uint64_t seed) {
  const auto begin = std::chrono::steady_clock::now();
  const int ends = Chain(training, place, seed).kill(kills);
  report(training.name + ": " + std::to_string(kills) + " kills, nothing lost, the same bits at " +
             std::to_string(ends) + " ends",
         begin);
}

// Implements `heddle_kills experts`.
void kill_experts(const fs::path& folder, int kills, uint64_t seed) {
  const auto begin = std::chrono::steady_clock::now();
  const Training training = mixture(folder, 4, 2);
  const std::vector<Training> others = {mixture(folder, 4, 1), mixture(folder, 2, 1), mixture(folder, 4, 4)};
  int moved = 0;
  Chain chain(training, folder, seed);
  chain.look([&](const fs::path& cut, const fs::path& whole) { moved += move_on(others, cut, whole); });
  const int ends = chain.kill(kills);
  if (moved == 0) throw Broken{"no kill was followed by other topologies"};
  report(training.name + ": " + std::to_string(kills) + " kills, nothing lost, the same bits at " +
             std::to_string(ends) + " ends, the same numbers at ep 1 and 4 after " + std::to_string(moved) +
             " moves",
         begin);
}

void restart(const Training& training, const fs::path& place, int kills, uint64_t seed) {
  const auto begin = std::chrono::steady_clock::now();
  const int restarts = restart_after_kills(training, place, kills, seed);
  report(training.name + ", started again by the launcher: " + std::to_string(kills) + " runs, " +
             std::to_string(restarts) + " restarts, nothing lost, the same bits at every end",
         begin);
}

void fail(const Training& training, const fs::path& place, int stride) {
  const auto begin = std::chrono::steady_clock::now();
  const int failed = fail_everywhere(training, place, stride);
  fs::remove_all(place);
  fs::create_directories(place);
  fail_without_permission(training, place);
  report(training.name + ": " + std::to_string(failed) + " failures, each said, nothing lost", begin);
}

// Runs `work` in a temporary folder with token files. Keeps the folder if a check fails.
template <class Work>
int in_a_folder(const Work& work) {
  std::string name = (temporary_folder() / "heddle_kills_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  fs::permissions(folder, fs::perms::others_exec | fs::perms::group_exec, fs::perm_options::add);
  write_tokens(folder / "train.bin", 41 * 7 + 3);
  write_tokens(folder / "validation.bin", 5 * 7 + 3);
  share_the_count();
  try {
    work(folder);
  } catch (const Broken& broken) {
    std::printf("FAILED, in %s: %s\n", folder.c_str(), broken.what.c_str());
    return 1;
  }
  fs::remove_all(folder);
  return 0;
}

// Calls share(i, n) for the i-th of n trainings.
template <class Share>
int on_all(const Share& share) {
  return in_a_folder([&](const fs::path& folder) {
    const std::vector<Training> all = trainings(folder);
    for (size_t i = 0; i < all.size(); ++i) {
      const fs::path place = folder / std::to_string(i);
      fs::create_directories(place);
      try {
        share(all[i], place, static_cast<int>(i), static_cast<int>(all.size()));
      } catch (const Broken& broken) {
        throw Broken{all[i].name + "\n" + broken.what};
      }
    }
  });
}

int usage() {
  std::fprintf(stderr,
               "heddle_kills [KILLS [SEED]]\nheddle_kills experts [KILLS [SEED]]\nheddle_kills faults "
               "[STRIDE]\n");
  return 2;
}

}  // namespace
}  // namespace kills

int main(int count, char** words) {
  using namespace kills;
  const std::string first = count > 1 ? words[1] : "100";
  const uint64_t second = count > 2 ? std::strtoull(words[2], nullptr, 10) : 1;
  if (first == "faults") {
    if (second < 1) return usage();
    return on_all([&](const Training& training, const fs::path& place, int, int) {
      fail(training, place, static_cast<int>(second));
    });
  }
  if (first == "experts") {
    const int most = count > 2 ? static_cast<int>(second) : 20;
    const uint64_t seed = count > 3 ? std::strtoull(words[3], nullptr, 10) : 1;
    if (most < 10) return usage();
    return in_a_folder([&](const fs::path& folder) { kill_experts(folder, most, seed); });
  }
  const int kills = std::atoi(first.c_str());
  if (kills < 1) return usage();
  return on_all([&](const Training& training, const fs::path& place, int i, int of) {
    const uint64_t seed = second + static_cast<uint64_t>(i);
    kill(training, place, kills * (i + 1) / of - kills * i / of, seed);
    if (training.kept != 0) restart(training, place, 1 + kills / 25, seed);
  });
}
