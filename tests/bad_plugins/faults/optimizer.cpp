// SGD with momentum. HEDDLE_FAULT selects a fault; each fault violates one sentence of
// heddle/parallel/optimizer.h.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "fault.h"
#include "heddle/plugin/optimizer.h"
#include "heddle/sdk.h"

namespace {

using faults::is;

struct Config {
  double momentum = 0.5;
  double lr = 0.1;
};

class Faulty : public heddle::IOptimizer {
 public:
  explicit Faulty(Config config) : config_(config) {}
  void start(std::span<const heddle::TrainedShard> shards, const heddle::DeviceMesh& mesh) override {
    mesh_.emplace(mesh);
    for (const heddle::TrainedShard& one : shards)
      trained_.push_back(
          {one, is("state_on_cpu") ? at::zeros(one.weight.sizes()) : at::zeros_like(one.weight)});
  }
  std::vector<heddle::OptimizerState> state() override {
    std::vector<heddle::OptimizerState> out;
    if (is("forgets_state")) return out;
    for (const Trained& one : trained_) {
      const heddle::Shard& shard = *one.of.shard;
      const char* name = is("dot_in_name") ? "a.b" : is("renames_state") ? "momentum" : "buffer";
      out.push_back({&shard, {heddle::box_state(shard, name, one.buffer)}});
      if (is("state_twice")) out.back().tensors.push_back(out.back().tensors.front());
      if (is("takes_master")) out.back().tensors.front().name = "master";
      if (is("box_outside")) out.back().tensors.front().offset[0] += 1;
    }
    return out;
  }
  void update(const heddle::OptimizerUpdate& by) override {
    if (is("exits")) std::exit(0);
    if (is("leaves")) ::_exit(0);
    if (is("crashes")) static_cast<volatile int*>(nullptr)[0] = 0;
    if (is("aborts")) std::abort();
    const at::NoGradGuard no_gradients;
    if (by.skip.defined() && !is("ignores_skip") && by.skip.item<float>() == 1) return;
    const double hidden = is("hides_a_count") ? 1.0 / static_cast<double>(++updates_) : 1;
    if (is("communicates") && mesh_->size("dp_shard") > 1)
      mesh_->group("dp_shard")
          .all_reduce(at::zeros({1}, trained_.front().of.weight.options().dtype(at::kFloat)))
          ->wait();
    for (const Trained& one : trained_) {
      const at::Tensor &weight = one.of.weight, &gradient = one.of.shard->tensor.grad();
      if (!gradient.defined()) {
        if (is("decays_without_gradient")) weight.mul_(0.9);
        continue;
      }
      at::Tensor own = gradient.to(weight.scalar_type());
      if (by.divisor.defined() && !is("ignores_divisor")) own = own / by.divisor;
      if (is("norm_of_the_shard") && own.numel() > 0) own = own / own.norm();
      if (is("reads_on_the_host") && own.numel() > 0 && *own.const_data_ptr<float>() == 0) continue;
      const double lr = is("ignores_groups")    ? 1
                        : is("squares_lr_mult") ? one.of.lr_mult * one.of.lr_mult
                                                : one.of.lr_mult;
      const double decay =
          is("ignores_weight_decay") ? 0 : by.weight_decay * (is("ignores_wd_mult") ? 1 : one.of.wd_mult);
      one.buffer.mul_(config_.momentum).add_(own).add_(weight, decay);
      weight.sub_(one.buffer, by.lr * lr * hidden);
    }
  }
  bool takes_divisor_and_skip() const override { return is("ignores_skip") || is("ignores_divisor"); }
  bool can_undo() const override { return true; }

 private:
  struct Trained {
    heddle::TrainedShard of;
    at::Tensor buffer;
  };
  Config config_;
  std::vector<Trained> trained_;
  std::optional<heddle::DeviceMesh> mesh_;
  int64_t updates_ = 0;
};

}  // namespace

HEDDLE_PLUGIN("faulty_optimizer", "0.1.0", "optimizer faulty") {
  static int registered = 0;
  if (is("registers_once") && ++registered > 1) throw std::runtime_error("registered already");
  auto schema =
      heddle::ConfigSchema<Config>().field("momentum", &Config::momentum, "Share of the last update.");
  if (is("common_key")) schema.field("lr", &Config::lr, "The learning rate.");
  auto& offered = plugin.optimizer<Faulty>("faulty", schema);
  if (is("no_default")) offered.fields.front().default_value.clear();
  if (is("takes_any_key"))
    offered.resolve = [resolve = offered.resolve](const heddle::Node&) {
      return resolve(heddle::Node::map({}));
    };
  if (is("no_such_key")) offered.no_effect = {"fused"};
}
