// KV cache: keys and values per layer, and attention of one new token to all cached tokens.
#include "lib/run/generate/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/attention_layout.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/sequence_core.h"
#include "lib/decoder/carried/layer_input.h"
#include "lib/decoder/latent/lightning_indexer.h"
#include "lib/nn/cpu/attend_one_cpu.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle {
namespace {

// Attention of the last token to the keys that it sees; returns [1, heads * value_dim].
at::Tensor attend_last(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const model::Heads& heads) {
  const int64_t window = heads.options.window, all = k.size(0);
  const int64_t seen = window > 0 ? std::min(window, all) : all;
  const model::BlockedInputs in{q.contiguous(), k.narrow(0, all - seen, seen), v.narrow(0, all - seen, seen),
                                at::tensor({0, static_cast<int>(seen)}, at::kInt).view({1, 2})};
  const int64_t count = q.size(1) / heads.head_dim;
  const at::Tensor out = at::empty({1, count * heads.value_dim()}, q.options());
  const at::Tensor log_sums =
      at::empty({count, 1}, q.options().dtype(model::accumulation_dtype(q.scalar_type())));
  model::attend_ranges(in, model::blocked_shape(heads), out, log_sums);
  if (heads.sinks.defined()) model::add_sinks(heads.sinks, out, log_sums);
  return out;
}

}  // namespace

class KvCache::Layer {
 public:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const model::Heads& heads) {
    if (heads.batch != 1 || (length_ > 0 && heads.sequence != 1))
      throw Error(ErrorCode::internal, "generate",
                  "the cache takes one sequence and, after the first forward, one token at a time");
    append(k, v);
    if (length_ == k.size(0)) return model::attend(q, k, v, heads);
    if (heads.chosen.defined()) {
      const at::Tensor rows = heads.chosen.select(0, 0);
      return attend_last(q, keys_.index_select(0, rows), values_.index_select(0, rows), heads);
    }
    if (heads.options == AttentionOptions{} && !heads.sinks.defined() &&
        model::is_for_attend_one_cpu(q, keys_, values_))
      return model::attend_one_cpu(q, keys_, values_, length_, heads.head_dim);
    return attend_last(q, keys_.narrow(0, 0, length_), values_.narrow(0, 0, length_), heads);
  }
  int64_t length() const { return length_; }
  void clear() { length_ = 0; }

 private:
  void append(const at::Tensor& k, const at::Tensor& v) {
    const int64_t length = length_ + k.size(0);
    if (!keys_.defined() || keys_.size(0) < length) {
      keys_ = grown(keys_, k, length);
      values_ = grown(values_, v, length);
    }
    put(keys_, k);
    put(values_, v);
    length_ = length;
  }
  // One row in main memory is copied by memcpy, which is cheaper than two operators.
  void put(const at::Tensor& kept, const at::Tensor& rows) const {
    if (rows.size(0) > 1 || !rows.is_cpu() || rows.stride(1) != 1) {
      kept.narrow(0, length_, rows.size(0)).copy_(rows);
      return;
    }
    const size_t bytes = static_cast<size_t>(rows.size(1)) * rows.element_size();
    std::memcpy(static_cast<char*>(kept.mutable_data_ptr()) + static_cast<size_t>(length_) * bytes,
                rows.const_data_ptr(), bytes);
  }
  // Doubles the capacity, so that the amortized cost of growth is small.
  at::Tensor grown(const at::Tensor& old, const at::Tensor& like, int64_t length) const {
    at::Tensor rows = at::empty({std::max<int64_t>(2 * length, 64), like.size(1)}, like.options());
    if (length_ > 0) rows.narrow(0, 0, length_).copy_(old.narrow(0, 0, length_));
    return rows;
  }

  at::Tensor keys_, values_;  // [room, kv_heads * head_dim], [room, kv_heads * value_dim]
  int64_t length_ = 0;
};

void refuse_not_causal(const Units& units) {
  model::each<AttentionCore>(units, [&](const std::string& path, AttentionCore& core) {
    if (!core.options().causal)
      throw Error(ErrorCode::usage, "generate",
                  "the attention of '" + path +
                      "' is not causal: an added token would change the outputs of earlier tokens",
                  "generate with a causal language model");
  });
}

std::string KvCache::why_none(const Units& units) {
  std::string why;
  for (const auto& unit : units) {
    auto* module_unit = dynamic_cast<ModuleUnit*>(unit.get());
    if (module_unit == nullptr) return "'" + std::string(unit->name()) + "' is not a ModuleUnit";
    // A head computes logits per token; its other parts matter in training only.
    if (module_unit->module()->traits().role == Role::head) continue;
    // prefix of the submodules of the last module with a state; matches no path at first
    std::string of_kept = "/";
    module_unit->visit([&](const std::string& path, Module& module) {
      const TokenUse use = module.traits().tokens;
      if (model::as<decoder::Mixer>(module) != nullptr ||
          model::as<decoder::LightningIndexer>(module) != nullptr)
        of_kept = path + ".";
      const bool is_core =
          model::as<SequenceCore>(module) != nullptr || model::as<RowGather>(module) != nullptr;
      const bool keeps_state = path + "." == of_kept || (path.starts_with(of_kept) && is_core);
      if (!why.empty() || use == TokenUse::each_alone || keeps_state ||
          model::as<AttentionCore>(module) != nullptr ||
          model::as<decoder::AllLayerInputs>(module) != nullptr)
        return;
      why = "'" + path + "' (" + std::string(module.kind()) + ")" +
            (use == TokenUse::mixes ? " mixes tokens outside of attention and mixers"
                                    : " does not say whether it computes each token alone");
    });
    if (!why.empty()) return why;
  }
  return why;
}

KvCache::KvCache(Units& units) {
  model::each<AttentionCore>(units, [&](const std::string&, AttentionCore& core) {
    Layer* layer = layers_.emplace_back(std::make_unique<Layer>()).get();
    core.instead.add(AttentionCore::Instead::in_place(
        "generate",
        [layer](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const model::Heads& heads,
                const Batch&) { return layer->attend(q, k, v, heads); }));
  });
  model::each<decoder::Mixer>(
      units, [&](const std::string&, decoder::Mixer& mixer) { states_.push_back(mixer.keep_state()); });
  model::each<decoder::LightningIndexer>(units, [&](const std::string&, decoder::LightningIndexer& indexer) {
    states_.push_back(indexer.keep_state());
  });
  model::each<Linear>(units, [&](const std::string& path, Linear& head) {
    if (path != "lm_head") return;
    head.input.add([this](at::Tensor rows) {
      seen_ += rows.size(0);
      return rows.narrow(0, rows.size(0) - 1, 1);
    });
  });
}

KvCache::~KvCache() = default;

int64_t KvCache::length() const {
  return layers_.empty() ? seen_ : layers_.front()->length();
}

void KvCache::clear() {
  for (const auto& layer : layers_) layer->clear();
  for (const auto& state : states_) state->clear();
  seen_ = 0;
}

}  // namespace heddle
