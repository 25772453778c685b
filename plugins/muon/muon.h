// Muon (Jordan et al. 2024): orthogonalized momentum for matrices, AdamW for all other parameters.
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
  std::optional<double> scalar_lr, embed_lr, lm_head_lr;  // factors of the learning rate of matrices
  bool flatten = false, use_triton = false;
};
ConfigSchema<Config> schema();

// The update of a matrix needs the whole matrix, however its shards are split. The ranks along the axes that
// split it take turns: in each round, each rank computes the update of one matrix.
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
    double lr_mult = 1;  // factor that follows from its shape
  };
  // Matrices of one dtype and device that the same ranks split, in the same order on every rank.
  struct Family {
    Communicator* ranks = nullptr;  // null: each rank holds whole matrices
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
