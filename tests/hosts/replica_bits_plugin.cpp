// AdamW plugin that writes a hash of every parameter after every step, to compare replicas.
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "heddle/plugin/optimizer.h"
#include "heddle/sdk.h"
#include "heddle/train/step.h"

namespace {

struct Config {
  std::string directory;
};

uint64_t hash(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(values.const_data_ptr());
  uint64_t sum = 14695981039346656037u;  // FNV-1a
  for (size_t i = 0; i < values.nbytes(); ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
  return sum;
}

class ReplicaBits : public heddle::IOptimizer {
 public:
  explicit ReplicaBits(Config config)
      : directory_(std::move(config.directory)), adamw_(heddle::train::make_adamw({})) {}
  void start(std::span<const heddle::TrainedShard> shards, const heddle::DeviceMesh& mesh) override {
    adamw_->start(shards, mesh);
    shards_.assign(shards.begin(), shards.end());
    file_ = directory_ + "/rank" + std::to_string(mesh.rendezvous().rank());
  }
  std::vector<heddle::OptimizerState> state() override { return adamw_->state(); }
  void update(const heddle::OptimizerUpdate& update) override {
    adamw_->update(update);
    ++step_;
    std::ofstream out(file_, std::ios::app);
    for (const heddle::TrainedShard& trained : shards_) {
      const heddle::Shard& shard = *trained.shard;
      if (shard.tensor.is_meta() || shard.tensor.numel() == 0) continue;
      out << step_ << ' ' << shard.name;
      for (size_t dim = 0; dim < shard.offset.size(); ++dim)
        out << ' ' << shard.offset[dim] << '+' << shard.tensor.size(static_cast<int64_t>(dim));
      out << '=' << hash(shard.tensor) << '\n';
    }
  }
  bool takes_divisor_and_skip() const override { return adamw_->takes_divisor_and_skip(); }
  bool can_undo() const override { return adamw_->can_undo(); }

 private:
  const std::string directory_;
  const std::unique_ptr<heddle::IOptimizer> adamw_;
  std::vector<heddle::TrainedShard> shards_;
  std::string file_;
  int step_ = 0;
};

}  // namespace

HEDDLE_PLUGIN("replica_bits", "0.1.0", "optimizer ReplicaBits") {
  plugin.optimizer<ReplicaBits>(
      "ReplicaBits", heddle::ConfigSchema<Config>().field("directory", &Config::directory,
                                                          "Directory of the files with the hashes."));
}
