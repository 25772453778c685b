// An optimizer whose exceptions carry the plugin's name, and whose state is checked once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/plugin/named/named_object.h"
#include "heddle/plugin/optimizer.h"

namespace heddle::plugin {

// Costs one more virtual call for each update.
class NamedOptimizer : public NamedObject<IOptimizer> {
 public:
  NamedOptimizer(Author author, std::string name, std::unique_ptr<IOptimizer> inner);
  void start(std::span<const TrainedShard> shards, const DeviceMesh& mesh) override;
  std::vector<OptimizerState> state() override;
  void update(const OptimizerUpdate& update) override;
  bool takes_divisor_and_skip() const override { return inner_->takes_divisor_and_skip(); }
  bool can_undo() const override { return inner_->can_undo(); }
  std::string name() const override { return name_; }

 private:
  std::string name_;
};

}  // namespace heddle::plugin
