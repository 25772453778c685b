// Measurement of rows in blocks, and replacement of damaged rows in the boxes that are read.
#include "repair.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::row_repair {
namespace {

constexpr int64_t kBlockNumbers = int64_t{1} << 22;

class Repair {
 public:
  Repair(ParameterSource source, Embeddings embeddings, Config config)
      : source_(std::move(source)), embeddings_(std::move(embeddings)), config_(config) {}

  bool read(const Shard& shard) {
    if (!source_(shard)) return false;
    if (shard.name != embeddings_.input || shard.tensor.is_meta() || shard.tensor.numel() == 0) return true;
    {
      const std::lock_guard lock(mutex_);
      if (!rows_) rows_ = replacements();
    }
    const at::NoGradGuard no_gradients;
    const int64_t first = shard.offset[0], end = first + shard.tensor.size(0);
    for (auto row = rows_->lower_bound(first); row != rows_->end() && row->first < end; ++row)
      shard.tensor.select(0, row->first - first)
          .copy_(row->second.narrow(0, shard.offset[1], shard.tensor.size(1)));
    return true;
  }

 private:
  using Rows = std::map<int64_t, at::Tensor>;  // by token, [width] in dtype

  at::Tensor rows_of(const std::string& parameter, int64_t first, int64_t count) const {
    Shard block;
    block.name = parameter;
    block.shape = embeddings_.shape;
    block.offset = {first, 0};
    block.tensor = at::empty({count, embeddings_.shape[1]}, embeddings_.dtype);
    if (!source_(block))
      throw Error(ErrorCode::input, embeddings_.where, "the model's files have no '" + parameter + "'",
                  "remove embedding_row_repair");
    return block.tensor;
  }

  // Returns the squared norms of the rows, fp64 [count].
  static at::Tensor squares_of(const at::Tensor& rows) {
    return rows.to(at::kFloat).square().to(at::kDouble).sum(1);
  }

  bool is_damaged(double square) const {
    return !std::isfinite(square) || std::sqrt(square) <= config_.min_norm;
  }

  Rows replacements() const {
    std::vector<int64_t> damaged;
    double healthy = 0;
    const int64_t all = embeddings_.shape[0];
    const int64_t step = std::max<int64_t>(1, kBlockNumbers / std::max<int64_t>(1, embeddings_.shape[1]));
    for (int64_t first = 0; first < all; first += step) {
      const at::Tensor squares = squares_of(rows_of(embeddings_.input, first, std::min(step, all - first)));
      const double* square = squares.const_data_ptr<double>();
      for (int64_t row = 0; row < squares.numel(); ++row) {
        if (is_damaged(square[row]))
          damaged.push_back(first + row);
        else
          healthy += square[row];
      }
    }
    const auto count = static_cast<int64_t>(damaged.size());
    check(count, all);
    const double target = std::sqrt(healthy / static_cast<double>(all - count));
    return scaled_outputs(damaged, target);
  }

  void check(int64_t damaged, int64_t all) const {
    if (damaged == all)
      throw Error(
          ErrorCode::input, embeddings_.where,
          "no row of '" + embeddings_.input + "' is above min_norm, so there is no norm to scale rows to",
          "check the model's files, or lower min_norm");
    if (damaged > config_.max_rows)
      throw Error(ErrorCode::input, embeddings_.where,
                  std::to_string(damaged) + " rows of '" + embeddings_.input +
                      "' are damaged, but max_rows is " + std::to_string(config_.max_rows) +
                      ": the files may belong to another model, or be broken",
                  "check the model's files; raise max_rows only if this many damaged rows are expected");
  }

  Rows scaled_outputs(const std::vector<int64_t>& damaged, double target) const {
    Rows out;
    std::vector<std::string> unusable;
    for (const int64_t row : damaged) {
      const at::Tensor direction = rows_of(embeddings_.output, row, 1);
      const double square = squares_of(direction).item<double>();
      if (is_damaged(square)) {
        unusable.push_back(std::to_string(row));
        continue;
      }
      const auto factor = static_cast<float>(target / std::sqrt(square));
      out[row] = (direction.to(at::kFloat) * factor).to(embeddings_.dtype).squeeze(0);
    }
    if (!unusable.empty())
      throw Error(ErrorCode::input, embeddings_.where,
                  "the output rows of the damaged input rows " + text::join(unusable) + " are damaged too" +
                      (embeddings_.input == embeddings_.output ? ": the head is tied to the embedding" : ""),
                  "remove embedding_row_repair, or repair the model's files");
    return out;
  }

  const ParameterSource source_;
  const Embeddings embeddings_;
  const Config config_;
  std::mutex mutex_;
  std::optional<Rows> rows_;
};

}  // namespace

ParameterSource repaired(ParameterSource source, const Embeddings& embeddings, const Config& config) {
  const auto repair = std::make_shared<Repair>(std::move(source), embeddings, config);
  return [repair](const Shard& shard) { return repair->read(shard); };
}

}  // namespace heddle::row_repair
