// Bytes that pass through the ranks' store: at the start of a run, and for a save, of 64 to 4,096 ranks.
//   bench_rendezvous [LARGEST]
// The ranks are simulated: each runs the code of a real rank up to its next rendezvous, in turn, and the
// rendezvous is held in a store in memory that counts. 7 billion parameters in the tensors of a Llama model,
// rows dealt over all ranks (fsdp2), 8 ranks to a machine. "all to all": what the same rendezvous cost where
// every rank gets the texts of all.
#include <ATen/ops/empty.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/mesh/dry.h"
#include "lib/transport/gloo/store_rendezvous.h"
#include "lib/transport/shm/shm_machine.h"

namespace {

using namespace heddle;

class CountingStore : public c10d::HashStore {
 public:
  void set(const std::string& key, const std::vector<uint8_t>& data) override {
    bytes += key.size() + data.size();
    HashStore::set(key, data);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    std::vector<uint8_t> data = HashStore::get(key);
    bytes += key.size() + data.size();
    return data;
  }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    auto all = HashStore::multiGet(keys);
    for (size_t i = 0; i < keys.size(); ++i) bytes += keys[i].size() + all[i].size();
    return all;
  }
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override {
    for (size_t i = 0; i < keys.size(); ++i) bytes += keys[i].size() + values[i].size();
    HashStore::multiSet(keys, values);
  }
  void append(const std::string& key, const std::vector<uint8_t>& data) override {
    bytes += key.size() + data.size();
    HashStore::append(key, data);
  }
  int64_t add(const std::string& key, int64_t value) override {
    bytes += key.size() + sizeof value;
    return HashStore::add(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) bytes += key.size() + 1;
    return HashStore::check(keys);
  }
  bool deleteKey(const std::string& key) override {
    bytes += key.size() + 1;
    return HashStore::deleteKey(key);
  }

  size_t bytes = 0;
};

// Thrown where a rank has given its text and would wait.
struct Waits {};

struct Held {
  std::vector<std::string> texts, answers;  // by rank
};

// A rank that has the answers of the rendezvous held so far.
class SimulatedRank : public DryRendezvous {
 public:
  SimulatedRank(int rank, int world, std::vector<Held>& kept_rendezvous, CountingStore& store)
      : DryRendezvous(rank, world), kept_rendezvous_(kept_rendezvous), store_(store) {}

  std::string hold_rendezvous(const std::string&, const std::string& text, const Answer& answer) override {
    const size_t number = next_++;
    if (number == kept_rendezvous_.size()) kept_rendezvous_.push_back({});
    Held& held = kept_rendezvous_[number];
    if (!held.answers.empty()) return held.answers[static_cast<size_t>(rank())];
    held.texts.resize(static_cast<size_t>(world_size()));
    held.texts[static_cast<size_t>(rank())] = text;
    if (rank() == 0) hold(held, number, answer);
    throw Waits{};
  }

 private:
  void hold(Held& held, size_t number, const Answer& answer) {
    const auto store = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store_);
    const std::string key = "text/" + std::to_string(number) + "/";
    std::vector<mesh::StoreRendezvous> ranks;
    for (int rank = 0; rank < world_size(); ++rank) ranks.emplace_back(store, key, rank, world_size());
    for (int rank = 1; rank < world_size(); ++rank) ranks[rank].give(held.texts[rank]);
    ranks[0].is_complete();
    held.answers = {ranks[0].answer(answer(ranks[0].texts(held.texts[0])))};
    for (int rank = 1; rank < world_size(); ++rank) {
      ranks[rank].is_answered();
      held.answers.push_back(ranks[rank].take());
    }
    ranks[0].is_read();
    ranks[0].clear();
  }

  std::vector<Held>& kept_rendezvous_;
  CountingStore& store_;
  size_t next_ = 0;
};

struct Cost {
  double now = 0, exchange = 0;
};

// Runs `body` on all ranks, from rendezvous to rendezvous. Rank 0 comes last to each, and holds it.
Cost cost_of(int world, const std::function<void(Rendezvous&)>& body) {
  const auto store = c10::make_intrusive<CountingStore>();
  std::vector<Held> kept_rendezvous;
  for (int ended = 0; ended < world;) {
    ended = 0;
    for (int rank = world - 1; rank >= 0; --rank) {
      SimulatedRank rendezvous(rank, world, kept_rendezvous, *store);
      try {
        body(rendezvous);
        ++ended;
      } catch (const Waits&) {
      }
    }
  }
  Cost cost{static_cast<double>(store->bytes), 0};
  for (const Held& held : kept_rendezvous)
    for (const std::string& text : held.texts)
      cost.exchange += static_cast<double>(text.size()) * (world + 1);
  return cost;
}

// The rows of a parameter that this rank holds, as torch.chunk cuts.
checkpoint::Part rows_of(const std::string& name, std::vector<int64_t> shape, int rank, int world) {
  const int64_t each = (shape[0] + world - 1) / world, begin = std::min(shape[0], each * rank);
  std::vector<int64_t> own = shape, offset(shape.size(), 0);
  own[0] = std::min(each, shape[0] - begin);
  offset[0] = begin;
  return {name, at::empty(own, at::kMeta), shape, offset};
}

std::vector<checkpoint::Part> parts_of(int rank, int world, const std::string& prefix) {
  std::vector<checkpoint::Part> out;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    out.push_back(rows_of(prefix + name + ".weight", std::move(shape), rank, world));
  };
  add("model.embed_tokens", {32000, 4096});
  for (int layer = 0; layer < 32; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    for (const char* which : {"q", "k", "v", "o"}) add(at + "self_attn." + which + "_proj", {4096, 4096});
    for (const char* which : {"gate", "up"}) add(at + "mlp." + which + "_proj", {11008, 4096});
    add(at + "mlp.down_proj", {4096, 11008});
    for (const char* which : {"input", "post_attention"}) add(at + which + "_layernorm", {4096});
  }
  add("model.norm", {4096});
  add("lm_head", {32000, 4096});
  return out;
}

void start(Rendezvous& rendezvous) {
  mesh::share_memory(0, rendezvous, "machine " + std::to_string(rendezvous.rank() / 8));
  const std::vector<Axis> axes = {{"dp_shard", rendezvous.world_size()}};
  mesh::build(axes, rendezvous, std::string(3000, 'f'));
  for (const char* key : {"owned shards", "lock", "tokens"}) rendezvous.barrier(key);
}

void plan(Rendezvous& rendezvous) {
  checkpoint::ShardedWriter model("model", parts_of(rendezvous.rank(), rendezvous.world_size(), ""),
                                  rendezvous, "model");
  std::vector<checkpoint::Part> moments = parts_of(rendezvous.rank(), rendezvous.world_size(), "exp_avg.");
  for (auto& part : parts_of(rendezvous.rank(), rendezvous.world_size(), "exp_avg_sq."))
    moments.push_back(std::move(part));
  checkpoint::ShardedWriter optimizer("optim", moments, rendezvous, "optim");
}

// The checksums of what a rank wrote, and the rendezvous around it.
void save(Rendezvous& rendezvous) {
  size_t digits = 0;
  for (const auto& part : parts_of(rendezvous.rank(), rendezvous.world_size(), ""))
    digits += 3 * 16 *
              ((static_cast<uint64_t>(part.tensor.numel()) * 4 + checkpoint::Manifest::kStretch - 1) /
               checkpoint::Manifest::kStretch);
  rendezvous.barrier("stage");
  rendezvous.meet("write", std::string(digits, '0'),
                  [](std::span<const std::string>) { return std::vector<std::string>{""}; });
  for (const char* key : {"manifests", "publish"}) rendezvous.barrier(key);
}

}  // namespace

int main(int count, char** words) {
  const int largest = count > 1 ? std::atoi(words[1]) : 4096;
  std::printf(
      "| ranks | start, MB | a rank, KB | all to all | plan of saves, MB | a rank, KB | all to all | a save, "
      "MB "
      "| a rank, KB | all to all |\n"
      "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  for (int world = 64; world <= largest; world *= 4) {
    std::printf("| %d |", world);
    for (const auto& body : {start, plan, save}) {
      const Cost cost = cost_of(world, body);
      std::printf(" %.2f | %.1f | %.0f |", cost.now / 1e6, cost.now / 1e3 / world, cost.exchange / 1e6);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  return 0;
}
