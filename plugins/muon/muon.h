// Muon: momentum made orthogonal for matrices (Jordan et al. 2024), AdamW for the rest.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/plugin/optimizer.h"
#include "heddle/sdk.h"

namespace heddle::muon {

struct Config {
  double mu = 0.95;
  std::vector<double> betas = {0.9, 0.95};
  double epsilon = 1e-8;
  bool nesterov = false;
  std::optional<std::string> adjust_lr = "spectral_norm";
  std::string scalar_opt = "adamw";
  std::optional<std::vector<double>> scalar_betas;
  std::optional<double> scalar_eps;
  std::optional<double> scalar_lr, embed_lr, lm_head_lr;  // factors of the rate of matrices
  bool flatten = false, use_triton = false;
};
ConfigSchema<Config> schema();

// A matrix is whole where its update is computed, however its shards are split: the ranks along the axes that
// split it take turns, each computes one of a round.
class Muon : public IOptimizer {
 public:
  explicit Muon(const Config& config);
  ~Muon() override;
  void start(std::span<const TrainedShard> shards, const DeviceMesh& mesh) override;
  std::vector<OptimizerState> state() override;
  void update(const OptimizerUpdate& update) override;

 private:
  struct Box {
    TrainedShard of;
    at::Tensor momentum;
  };
  struct Matrix {  // its boxes on this rank
    std::vector<Box> boxes;
    double lr_mult = 1;  // of its shape
  };
  // Matrices that the same ranks split, of one dtype and device, in one order on every rank.
  struct Family {
    Communicator* ranks = nullptr;  // null: each rank has whole matrices
    std::vector<std::string> axes;
    std::vector<Matrix> matrices;
  };
  Family& family_of(const TrainedShard& shard);
  void update_round(Family& family, size_t first, const OptimizerUpdate& update) const;
  at::Tensor direction(const Box& box) const;
  void apply(const Matrix& matrix, const at::Tensor& whole, const OptimizerUpdate& update) const;

  const Config config_;
  std::unique_ptr<IOptimizer> rest_;
  std::vector<Family> families_;
};

}  // namespace heddle::muon
