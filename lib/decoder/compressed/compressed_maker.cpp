// Builds a compressed attention from its description, and checks it.
#include <algorithm>
#include <string>

#include "heddle/base/error.h"
#include "lib/decoder/compressed/compressed_attention.h"

namespace heddle::decoder {
namespace {

double number_of(int64_t value) {
  return static_cast<double>(value);
}

class CompressedMaker : public MixerMaker {
 public:
  explicit CompressedMaker(const CompressedAttention& form) : form_(form) {}
  std::string name() const override { return "self_attn"; }
  std::unique_ptr<Mixer> make(int64_t width, double init_std,
                              const at::TensorOptions& options) const override {
    return std::make_unique<CompressedMixer>(form_, width, init_std, options);
  }
  double multiplications(int64_t width, int64_t sequence) const override {
    const double dim = number_of(form_.head_dim), heads = number_of(form_.heads),
                 rank = number_of(form_.query_rank);
    const double outputs = number_of(form_.output_groups * form_.output_rank);
    const double products = number_of(width) * (rank + dim + outputs) + rank * heads * dim +
                            heads * dim * number_of(form_.output_rank);
    return products + 2 * heads * dim * (in_window(sequence) + entries(sequence)) +
           of_entries(width, sequence);
  }

 private:
  double in_window(int64_t sequence) const {
    const double window = number_of(std::min(form_.window, sequence));
    return window - window * window / (2 * number_of(sequence));
  }
  // Mean number of entries that a token sees in a sequence.
  double entries(int64_t sequence) const {
    if (form_.rate == 0) return 0;
    const double most = number_of(sequence / form_.rate), chosen = number_of(form_.index_top_k);
    if (chosen == 0 || chosen >= most) return most / 2;
    return chosen - chosen * chosen / (2 * most);
  }
  // Projections; the indexer counts a third, because it has no backward.
  double of_entries(int64_t width, int64_t sequence) const {
    if (form_.rate == 0) return 0;
    const double parts = form_.overlapped ? 2 : 1;
    const double own = number_of(width) * 2 * parts * number_of(form_.head_dim);
    if (form_.index_top_k == 0) return own;
    const double heads = number_of(form_.index_heads), dim = number_of(form_.index_head_dim);
    const double scores = heads * (dim + 1) * number_of(sequence / form_.rate) / 2;
    return own + (number_of(width) * (2 * parts * dim + heads) + heads * dim * number_of(form_.query_rank) +
                  scores) /
                     3;
  }

  CompressedAttention form_;
};

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::config, "model", "compressed attention " + what, hint);
}

void check_rotary(int64_t rotary, int64_t head_dim, const std::string& of) {
  if (rotary >= 2 && rotary % 2 == 0 && rotary <= head_dim) return;
  refuse("rotates " + std::to_string(rotary) + " of the " + std::to_string(head_dim) + " elements of " + of,
         "use an even number from 2 to the head size");
}

}  // namespace

std::shared_ptr<const MixerMaker> compressed_attention(const CompressedAttention& form) {
  check_rotary(form.rotary, form.head_dim, "a head");
  if (form.index_top_k > 0) check_rotary(form.rotary, form.index_head_dim, "an indexer's head");
  if (form.output_groups < 1 || form.heads % form.output_groups != 0)
    refuse("has " + std::to_string(form.heads) + " heads in " + std::to_string(form.output_groups) +
               " groups, which do not divide them",
           "choose a number of groups that divides the heads");
  if (form.index_top_k > 0 && form.rate == 0)
    refuse("has an indexer but no entries", "set a rate, or remove index_top_k");
  return std::make_shared<CompressedMaker>(form);
}

}  // namespace heddle::decoder
