// KV cache: keeps keys and values of past tokens, so that each new token costs one row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"
#include "heddle/model/unit.h"

namespace heddle {

// Throws Error{usage} if attention is not causal.
void refuse_not_causal(const Units& units);

// Cache for inference of one sequence on one rank. The first forward takes tokens [1, n] from position 0,
// each later one the next token [1, 1] with its position in the batch. Logits are those of the last token
// only.
class HEDDLE_API KvCache {
 public:
  // Returns why no cache can hold the state of the units: the first module that mixes tokens outside of
  // attention and mixers, which keep their state, or does not declare whether it does. Empty: a cache works.
  // Indexers of sparse attention keep their keys.
  static std::string why_none(const Units& units);

  // Replaces every attention of the units (AttentionCore::instead), lets mixers keep their state, and narrows
  // the input of "lm_head" to the last token. The units may be moved, for example into stages. The cache must
  // outlive their use.
  explicit KvCache(Units& units);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  int64_t length() const;  // number of tokens seen
  void clear();

 private:
  class Layer;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::unique_ptr<decoder::MixerState>> states_;  // of layers without attention and of indexers
  int64_t seen_ = 0;                                          // number of tokens, as counted by the head
};

}  // namespace heddle
