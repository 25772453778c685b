// Multiplications per token in each part of a layer.
#include "lib/decoder/units.h"

#include <iterator>
#include <vector>

#include "heddle/decoder/description.h"

namespace heddle::decoder {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

// Mean number of tokens that a token sees in a sequence.
double seen(const AttentionOptions& options, int64_t sequence) {
  const double length = real(sequence), window = real(options.window);
  return window == 0 || window >= length ? length / 2 : window - window * window / (2 * length);
}

// Hyper-connections of mixer and MLP: computing the weights, the sum of the streams, and mixing them.
double of_streams(const Model& model) {
  if (!model.hyper_connections) return 0;
  const double n = real(model.hyper_connections->streams), layers = real(std::ssize(model.layers));
  const double of_part = (2 + n) * n * n + n + n + n * n;
  return real(model.width) * (layers * 2 * of_part + n * n + n);
}

// Each sum over blocks takes two multiplications per element: for the scores and for the sum.
double of_blocks(const Model& model) {
  if (!model.block_residuals) return 0;
  const int64_t layers = std::ssize(model.layers), size = model.block_residuals->size;
  double values = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t before = (i + size - 1) / size, within = i / size + 1;
    values += real(before > 0 ? before + 1 : 0) + real(within + 1);
  }
  return 2 * real(model.width) * (values + real((layers - 1) / size + 2));
}

// Counts weights of projections, and one multiplication per visible element of q k^T and of its product with
// v.
struct Counter {
  double width;
  int64_t sequence;

  double operator()(const Attention& form) const {
    const int64_t value = form.options.value_dim > 0 ? form.options.value_dim : form.head_dim;
    const bool own = !form.keys_of_layer;
    const double q = real(form.heads * form.head_dim), y = real(form.heads * value);
    const double k = own ? real(form.kv_heads * form.head_dim) : 0;
    const double v = own && !form.keys_are_values ? real(form.kv_heads * value) : 0;
    const double gate = form.gate.width == OutputGate::Width::none        ? 0
                        : form.gate.width == OutputGate::Width::each_head ? real(form.heads)
                                                                          : y;
    return width * ((form.output_gate ? 2 : 1) * q + k + v + y + gate) +
           (q + y) * seen(form.options, sequence);
  }
  double operator()(const Latent& form) const {
    const double rank = real(form.rank), query_rank = real(form.query_rank), rotary = real(form.rotary);
    const double key = real(form.plain + form.rotary), heads = real(form.heads);
    const double value = real(form.value), plain = real(form.plain);
    const double queries = form.query_rank > 0 ? query_rank * (width + heads * key) : width * heads * key;
    const double keys = width * (rank + rotary) + rank * heads * (plain + value);
    AttentionOptions options;
    if (form.indexer) options.window = form.indexer->top_k;  // number of earlier keys that a query attends to
    const double gate = form.output_gate ? heads * value * width : 0;
    return queries + keys + gate + heads * value * width + heads * (key + value) * seen(options, sequence) +
           choice(form);
  }
  // A third, because there is no backward. Zero if a query sees all earlier keys.
  double choice(const Latent& form) const {
    if (!form.indexer || form.indexer->of_layer_before || sequence <= form.indexer->top_k) return 0;
    const double heads = real(form.indexer->heads), dim = real(form.indexer->head_dim);
    const double weights = heads * dim * real(form.query_rank) + (dim + heads) * width;
    return (weights + heads * (dim + 1) * seen({}, sequence)) / 3;
  }
  double operator()(const std::shared_ptr<const MixerMaker>& maker) const {
    return maker->multiplications(static_cast<int64_t>(width), sequence);
  }
  double operator()(const Mlp& form) const { return (form.gated ? 3 : 2) * width * real(form.width); }
  double operator()(const Mixture& form) const {
    const int64_t shared =
        (form.shared_gated ? 3 : 2) * form.shared_width + (form.shared_width > 0 && form.shared_gate ? 1 : 0);
    const double of_expert = real((form.activation.columns() + 1) * form.width * form.router.rule.top_k);
    const double latent = real(form.latent);
    const double inside = form.latent > 0 ? latent * (of_expert + 2 * width) : width * of_expert;
    return width * real(form.router.experts + shared) + inside;
  }
  double operator()(Absent) const { return 0; }
};

}  // namespace

double operations_per_token(const Model& model, int64_t sequence) {
  const Counter count{real(model.width), sequence};
  const auto of = [&](const std::vector<Layer>& layers) {
    double sum = 0;
    for (const Layer& layer : layers) {
      sum += std::visit(count, layer.mixer) + std::visit(count, layer.feed_forward);
      for (const auto& maker : layer.beside) sum += count(maker);
      if (layer.experts_beside) sum += count(*layer.experts_beside);
    }
    return sum;
  };
  const double logits = real(model.width) * real(model.vocabulary);
  const double mtp = of(model.mtp.layers) + 2 * real(model.width) * real(model.width) + logits;
  // Per layer: its part of the first projection, and two projections of its own.
  const double inputs =
      3 * real(model.width) * real(model.layer_inputs.width) * static_cast<double>(model.layers.size());
  return 6 * (of(model.layers) + inputs + of_streams(model) + of_blocks(model) + logits +
              real(model.mtp.tokens) * mtp);
}

}  // namespace heddle::decoder
