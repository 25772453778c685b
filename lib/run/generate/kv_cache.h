// Keys and values of the tokens that a model has seen, so that one more token costs one row.
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

// Throws Error{usage} for attention that is not causal.
void refuse_not_causal(const Units& units);

// Without gradients, one sequence, one rank. The first forward takes tokens [1, n] from position 0; each one
// after it the next token [1, 1], with its position in the batch. Logits are those of the last token alone.
class HEDDLE_API KvCache {
 public:
  // Why no cache can hold what the units need: the first module that computes a token from others outside of
  // attention and of mixers, which keep their state, or that does not say; empty: one can. Indexers of sparse
  // attention keep their keys.
  static std::string why_none(const Units& units);

  // Computes in place of every attention (AttentionCore::instead) of the units, lets mixers keep their state,
  // and narrows the input of "lm_head". The units may be moved, into stages too; the cache lives as long as
  // they run.
  explicit KvCache(Units& units);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  int64_t length() const;  // tokens seen
  void clear();

 private:
  class Layer;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::unique_ptr<decoder::MixerState>> states_;  // of layers without attention and of indexers
  int64_t seen_ = 0;                                          // tokens, as the head counts them
};

}  // namespace heddle
