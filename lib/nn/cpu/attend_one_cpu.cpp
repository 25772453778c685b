// Per head: the scores of all keys, their softmax, and the sum of values. Heads are split over the threads.
#include "lib/nn/cpu/attend_one_cpu.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/widest.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

// Rows of keys and values of one head, `row` numbers apart.
struct Kept {
  const float* keys;
  const float* values;
  int64_t tokens, row;
};

HEDDLE_INLINE float dot(const float* a, const float* b, int64_t count) {
  Floats sums = {};
  int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) sums += floats_at(a + i) * floats_at(b + i);
  float sum = total_of(sums);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

HEDDLE_INLINE void attend_head(const float* q, const Kept& kept, int64_t head_dim, float* scores,
                               float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  float largest = -INFINITY;
  for (int64_t t = 0; t < kept.tokens; ++t) {
    const float* key = kept.keys + t * kept.row;
    scores[t] = scale * dot(q, key, head_dim);
    largest = std::max(largest, scores[t]);
  }
  float total = 0;
  for (int64_t t = 0; t < kept.tokens; ++t) total += scores[t] = std::exp(scores[t] - largest);
  std::fill(out, out + head_dim, 0.0f);
  for (int64_t t = 0; t < kept.tokens; ++t) {
    const float* value = kept.values + t * kept.row;
    const float share = scores[t] / total;
    for (int64_t i = 0; i < head_dim; ++i) out[i] += share * value[i];
  }
}

}  // namespace

bool is_for_attend_one_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto fits = [](const at::Tensor& rows) {
    return rows.is_cpu() && rows.scalar_type() == at::kFloat && rows.stride(1) == 1;
  };
  return q.size(0) == 1 && fits(q) && fits(k) && fits(v) && k.stride(0) == v.stride(0);
}

at::Tensor attend_one_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t tokens,
                          int64_t head_dim) {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  const int64_t heads = q.size(1) / head_dim, queries_of_key = heads * head_dim / k.size(1);
  const int64_t row = k.stride(0);
  const float *queries = q.const_data_ptr<float>(), *keys = k.const_data_ptr<float>();
  const float* values = v.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  over_rows(heads, 2 * tokens * head_dim, [=](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(tokens));
    for (int64_t head = begin; head < end; ++head) {
      const int64_t from = head / queries_of_key * head_dim;
      run_widest<attend_head>(queries + head * head_dim, Kept{keys + from, values + from, tokens, row},
                              head_dim, scores.data(), to + head * head_dim);
    }
  });
  return out;
}

}  // namespace heddle::model
