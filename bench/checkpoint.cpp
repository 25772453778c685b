// heddle's side of checkpoint_against_pytorch.py: one rank that saves and loads a state, on command, and
// plain writing and reading of as many bytes.
//   bench_checkpoint MEBIBYTES
// of the whole state: model and two moments in fp32, rows dealt over the ranks. The rank's place comes from
// the environment. Reads lines from its standard input: "save DIR", "load DIR", "write DIR", "read DIR",
// "async DIR", "quit". Rank 0 answers each with one JSON line.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "core/mesh/packed.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/transport/join.h"
#include "lib/run/checkpointing/background.h"
#include "lib/run/checkpointing/copies.h"

namespace {

using namespace heddle;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Parts = std::vector<checkpoint::Part>;

constexpr int64_t kWidth = 1024, kInner = 2816, kVocabulary = 32000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct State {
  Parts model, optimizer;
};

// This rank's rows of a tensor, other numbers in each.
checkpoint::Part rows_of(const std::string& name, std::vector<int64_t> shape, const Rendezvous& rendezvous) {
  const int64_t begin = shape[0] * rendezvous.rank() / rendezvous.world_size();
  const int64_t end = shape[0] * (rendezvous.rank() + 1) / rendezvous.world_size();
  std::vector<int64_t> size = shape, offset(shape.size(), 0);
  size[0] = end - begin;
  offset[0] = begin;
  at::Tensor tensor = at::empty(size, at::kFloat);
  float* numbers = tensor.mutable_data_ptr<float>();
  uint32_t seed = static_cast<uint32_t>(std::hash<std::string>()(name)) + static_cast<uint32_t>(begin);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    numbers[i] = static_cast<float>(seed) * 1e-9f;
  }
  return {name, tensor, std::move(shape), std::move(offset)};
}

// The shapes of a Llama, as many layers as fill the mebibytes. pytorch_checkpoint.py has the same.
State state_of(int64_t mebibytes, const Rendezvous& rendezvous) {
  State state;
  int64_t left = (mebibytes << 20) / 12;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    left -= shape[0] * (shape.size() > 1 ? shape[1] : 1);
    state.model.push_back(rows_of(name, shape, rendezvous));
    for (const char* kind : {"exp_avg.", "exp_avg_sq."})
      state.optimizer.push_back(rows_of(kind + name, shape, rendezvous));
  };
  add("model.embed_tokens.weight", {kVocabulary, kWidth});
  add("lm_head.weight", {kVocabulary, kWidth});
  for (int layer = 0; left > 0; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer);
    add(name + ".input_layernorm.weight", {kWidth});
    for (const char* which : {"q", "k", "v", "o"})
      add(name + ".self_attn." + which + "_proj.weight", {kWidth, kWidth});
    add(name + ".mlp.gate_proj.weight", {kInner, kWidth});
    add(name + ".mlp.up_proj.weight", {kInner, kWidth});
    add(name + ".mlp.down_proj.weight", {kWidth, kInner});
  }
  return state;
}

int64_t bytes_of(const State& state) {
  int64_t bytes = 0;
  for (const Parts* parts : {&state.model, &state.optimizer})
    for (const auto& part : *parts) bytes += static_cast<int64_t>(part.tensor.nbytes());
  return bytes;
}

class Bench {
 public:
  Bench(Rendezvous& rendezvous, int64_t mebibytes)
      : rendezvous_(rendezvous),
        state_(state_of(mebibytes, rendezvous)),
        model_("model", state_.model, rendezvous, "model"),
        optimizer_("optim", state_.optimizer, rendezvous, "optim") {
    copy();  // takes the memory
  }

  void serve() {
    const std::map<std::string, std::function<void(const fs::path&)>> timed = {
        {"save",
         [&](const fs::path& to) { save(to, model_.mine(state_.model), optimizer_.mine(state_.optimizer)); }},
        {"load", [&](const fs::path& from) { load(from); }},
        {"write", [&](const fs::path& to) { write(to); }},
        {"read", [&](const fs::path& from) { read(from); }}};
    for (std::string line; std::getline(std::cin, line) && line != "quit";) {
      const size_t space = line.find(' ');
      const std::string word = line.substr(0, space);
      const fs::path place = line.substr(space + 1);
      rendezvous_.barrier("begin");
      if (word == "async") {
        async(place);
        continue;
      }
      const Clock::time_point start = Clock::now();
      timed.at(word)(place);
      rendezvous_.barrier("end");
      answer("{\"seconds\": %.6f, \"bytes\": %lld}\n", seconds_since(start),
             rendezvous_.world_size() * bytes_of(state_));
    }
  }

 private:
  template <class... Values>
  void answer(const char* format, Values... values) const {
    if (rendezvous_.rank() != 0) return;
    std::printf(format, values...);
    std::fflush(stdout);
  }

  // Saves as lib/run/checkpointing/save.cpp does, without the notes.
  void save(const fs::path& directory, const Parts& model, const Parts& optimizer) {
    const fs::path stage = checkpoint::stage_of(directory);
    checkpoint::on_first(rendezvous_, "stage", [&] {
      checkpoint::open_stage(directory);
      fs::create_directories(stage / "model");
      fs::create_directories(stage / "optim");
    });
    const auto told = checkpoint::gather_on_first(rendezvous_, "write", [&] {
      return mesh::pack(
          std::vector{model_.write(stage / "model", model), optimizer_.write(stage / "optim", optimizer)});
    });
    checkpoint::on_first(rendezvous_, "publish", [&] {
      std::vector<std::string> models, optimizers;
      for (const std::string& rank : told) {
        const std::vector<std::string> both = mesh::unpack(rank);
        models.push_back(both[0]);
        optimizers.push_back(both[1]);
      }
      model_.write_manifest(stage / "model", models);
      optimizer_.write_manifest(stage / "optim", optimizers);
      checkpoint::publish(directory);
    });
  }

  void load(const fs::path& directory) {
    checkpoint::on_every_rank(rendezvous_, "load", [&] {
      checkpoint::ShardedReader model(directory / "model"), optimizer(directory / "optim");
      for (const auto& part : state_.model) model.read(part);
      for (const auto& part : state_.optimizer) optimizer.read(part);
    });
  }

  fs::path plain_file(const fs::path& directory) const {
    return directory / ("plain." + std::to_string(rendezvous_.rank()));
  }

  template <class Visit>
  void each_tensor(const Visit& visit) const {
    for (const Parts* parts : {&state_.model, &state_.optimizer})
      for (const auto& part : *parts)
        visit(static_cast<char*>(part.tensor.mutable_data_ptr()), part.tensor.nbytes());
  }

  // One file a rank, one call a tensor, one fsync.
  void write(const fs::path& directory) const {
    fs::create_directories(directory);
    const int file = ::open(plain_file(directory).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    each_tensor([&](char* at, size_t bytes) {
      for (ssize_t wrote = 0; bytes > 0; at += wrote, bytes -= static_cast<size_t>(wrote))
        if ((wrote = ::write(file, at, bytes)) <= 0) throw std::runtime_error("write failed");
    });
    if (::fsync(file) != 0 || ::close(file) != 0) throw std::runtime_error("fsync failed");
  }

  void read(const fs::path& directory) const {
    const int file = ::open(plain_file(directory).c_str(), O_RDONLY);
    each_tensor([&](char* at, size_t bytes) {
      for (ssize_t got = 0; bytes > 0; at += got, bytes -= static_cast<size_t>(got))
        if ((got = ::read(file, at, bytes)) <= 0) throw std::runtime_error("read failed");
    });
    ::close(file);
  }

  // Copies as Saver::save() does before the run continues.
  std::pair<Parts, Parts> copy() {
    return {model_copies_.of(model_.mine(state_.model)),
            optimizer_copies_.of(optimizer_.mine(state_.optimizer))};
  }

  // The pause of a save in the background beside a bare copy into memory that is there, and products that go
  // on meanwhile beside products alone.
  void async(const fs::path& directory) {
    const Clock::time_point bare = Clock::now();
    copy();
    const double copying = seconds_since(bare);
    rendezvous_.barrier("copied");
    const at::Tensor square = at::ones({768, 768});
    const auto step = [&] {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < 4; ++i) at::mm(square, square);
      return seconds_since(start);
    };
    std::vector<double> alone, beside;
    for (int i = 0; i < 30; ++i) alone.push_back(step());
    rendezvous_.barrier("alone");
    const Clock::time_point start = Clock::now();
    std::atomic<bool> is_done = false;
    {
      auto copies = copy();
      background_.start([&, copies = std::move(copies)] {
        save(directory, copies.first, copies.second);
        is_done = true;
      });
    }
    const double pause = seconds_since(start);
    while (!is_done) beside.push_back(step());
    background_.wait();
    const double saving = seconds_since(start);
    rendezvous_.barrier("end");
    double mean_alone = 0, mean_beside = 0;
    for (const double one : alone) mean_alone += one / static_cast<double>(alone.size());
    for (const double one : beside) mean_beside += one / static_cast<double>(beside.size());
    answer("{\"pause\": %.6f, \"copy\": %.6f, \"saving\": %.6f, \"slower\": %.4f}\n", pause, copying, saving,
           mean_beside / mean_alone);
  }

  Rendezvous& rendezvous_;
  State state_;
  const checkpoint::ShardedWriter model_, optimizer_;
  Copies model_copies_, optimizer_copies_;
  Background background_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "bench_checkpoint MEBIBYTES\n");
    return 2;
  }
  at::set_num_threads(1);
  try {
    const auto rendezvous = mesh::join(place_from_environment().value_or(RankPlace{}), {});
    Bench(*rendezvous, std::atoll(arguments[1])).serve();
    rendezvous->leave();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
