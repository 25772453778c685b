// Product operators: linear layers, embedding, block-diagonal products, token losses.
#include <algorithm>
#include <array>
#include <memory>

#include "heddle/model/autocast.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "lib/decoder/compressed/block_product.h"
#include "operators/operator.h"

namespace heddle::tests {
namespace {

using Check = OperatorCheck;
using Ins = OperatorTensors;

Operator linear_operator() {
  const OperatorFunction run = [](const Ins& in, const Ins&) {
    return Ins{model::linear(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor())};
  };
  const OperatorFunction plain = [](const Ins& in, const Ins&) {
    return Ins{at::linear(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor())};
  };
  return {"linear",
          {"LinearBackward"},
          {{"with a bias", {{5, 7}, {3, 7}, {3}}, run, plain, {}, 2.0 * 5 * 7 * 3},
           {"of three dims", {{2, 5, 7}, {3, 7}, {3}}, run, plain, {}, 2.0 * 10 * 7 * 3},
           {"without a bias", {{4, 7}, {3, 7}}, run, plain, {}, 2.0 * 4 * 7 * 3},
           {"of one row", {{1, 67}, {33, 67}}, run, plain, {}, 2.0 * 67 * 33},
           {"of large matrices", {{161, 163}, {167, 163}}, run, plain, {}, 2.0 * 161 * 163 * 167}},
          {},
          true,
          3e-2,
          {{"512 x 1024 x 1024", {{512, 1024}, {1024, 1024}}, run}}};
}

Operator linear_onto_operator() {
  const OperatorFunction run = [](const Ins& in, const Ins&) {
    return Ins{model::linear_onto(in[0], in[1], in[2], in.size() > 3 ? in[3] : at::Tensor())};
  };
  const OperatorFunction plain = [](const Ins& in, const Ins&) {
    return Ins{in[0] + at::linear(in[1], in[2], in.size() > 3 ? in[3] : at::Tensor())};
  };
  return {"linear_onto",
          {"LinearBackward"},
          {{"with a bias", {{5, 3}, {5, 7}, {3, 7}, {3}}, run, plain, {}, 2.0 * 5 * 7 * 3},
           {"of three dims", {{2, 5, 3}, {2, 5, 7}, {3, 7}}, run, plain, {}, 2.0 * 10 * 7 * 3}}};
}

// Two linear layers with the same input. Their weights come from `in`.
class LinearPair {
 public:
  explicit LinearPair(const Ins& in, bool seamed = false)
      : first_(7, 3, Linear::Bias::zeros, {}, in[0].options().requires_grad(false)),
        second_(7, 5, Linear::Bias::none, {}, in[0].options().requires_grad(false)) {
    first_.weight = in[1];
    first_.bias = in[2];
    second_.weight = in[3];
    if (seamed) first_.output.add([](at::Tensor y) { return y * 2; });
  }
  model::FewTensors outputs(const at::Tensor& x, model::Outputs layout) {
    return model::call_each({&first_, &second_}, x, {}, layout);
  }
  std::array<Linear*, 2> layers() { return {&first_, &second_}; }

 private:
  Linear first_, second_;
};

Ins plain_pair(const Ins& in, const Ins&) {
  return {at::linear(in[0], in[1], in[2]), at::linear(in[0], in[3])};
}

Ins plain_seamed(const Ins& in, const Ins& constants) {
  Ins out = plain_pair(in, constants);
  out[0] = out[0] * 2;
  return out;
}

Operator call_each_operator() {
  const auto run = [](model::Outputs layout, bool seamed = false) {
    return [=](const Ins& in, const Ins&) {
      const model::FewTensors out = LinearPair(in, seamed).outputs(in[0], layout);
      return Ins(out.begin(), out.end());
    };
  };
  const std::vector<OperatorInput> inputs = {{4, 7}, {3, 7}, {3}, {5, 7}};
  const double products = 2.0 * 4 * 7 * 8;
  return {"call_each",
          {"LinearBackward"},
          {{"apart", inputs, run(model::Outputs::apart), plain_pair, {}, products},
           {"columns", inputs, run(model::Outputs::columns), plain_pair, {}, products},
           {"behind a seam", inputs, run(model::Outputs::apart, true), plain_seamed, {}, products}}};
}

class ProductsOfLibTorch final : public model::LinearProducts {
 public:
  at::Tensor forward(size_t, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    return bias.defined() ? at::addmm(bias, rows, weight.t()) : at::mm(rows, weight.t());
  }
  model::LinearGradients backward(size_t, const at::Tensor& dy, const at::Tensor& rows,
                                  const at::Tensor& weight, model::LinearWanted wanted) override {
    model::LinearGradients out;
    if (wanted != model::LinearWanted::rows) out.weight = at::mm(dy.t(), rows);
    if (wanted != model::LinearWanted::weight) out.rows = at::mm(dy, weight);
    return out;
  }
};

Operator products_by_operator() {
  const OperatorFunction run = [](const Ins& in, const Ins&) {
    LinearPair pair(in);
    const std::array<Linear*, 2> layers = pair.layers();
    const model::FewTensors out = model::products_by(std::make_unique<ProductsOfLibTorch>(), layers, in[0]);
    return Ins(out.begin(), out.end());
  };
  return {"products_by",
          {"LinearProductsBackward"},
          {{"two layers", {{4, 7}, {3, 7}, {3}, {5, 7}}, run, plain_pair, {}, 2.0 * 4 * 7 * 8}}};
}

// An operator that computes in bfloat16 for any input dtype.
Operator autocast_operator() {
  static model::Autocast autocast(at::kBFloat16, model::Autocast::Weights::cast_each_time);
  const OperatorFunction run = [](const Ins& in, const Ins&) {
    const model::Autocast::Scope scope(&autocast);
    return Ins{in.size() > 3 ? model::linear_onto(in[3], in[0], in[1], in[2])
                             : model::linear(in[0], in[1], in[2])};
  };
  const char* const narrow = "float32 is rounded to bfloat16 before the product, and float64 is never cast";
  return {"linear_under_autocast",
          {"AutocastLinearBackward"},
          {{"with a bias", {{5, 7}, {3, 7}, {3}}, run, {}, {}, 2.0 * 5 * 7 * 3},
           {"onto a residual", {{5, 7}, {3, 7}, {3}, {5, 3}}, run, {}, {}, 2.0 * 5 * 7 * 3}},
          {{Check::formula, narrow}, {Check::gradient, narrow}}};
}

// first: first table row of the weight's shard of nine rows. Negative: the weight holds the whole table.
OperatorCase embedding_case(const std::string& name, int64_t padding, int64_t first,
                            const at::Tensor& tokens) {
  const OperatorFunction run = [=](const Ins& in, const Ins& constants) {
    return Ins{first < 0 ? model::embedding(constants[0], in[0], padding)
                         : model::embedding(constants[0], in[0], padding, {first, 9})};
  };
  const OperatorFunction plain = [=](const Ins& in, const Ins& constants) {
    const at::Tensor row = constants[0].flatten() - std::max<int64_t>(first, 0);
    const at::Tensor held = row.ge(0).logical_and(row.lt(5)).unsqueeze(1);
    const at::Tensor rows = at::index_select(in[0], 0, row.clamp(0, 4)) * held;
    return Ins{at::where(constants[0].view({-1, 1}).eq(padding), rows.detach(), rows)};
  };
  return {name, {{5, 4}}, run, plain, {tokens}};
}

Operator embedding_operator() {
  const at::Tensor tokens = at::tensor({3, 1, 3, 0, 3, 1}, at::kLong).view({2, 3});
  Operator out{"embedding",
               {"EmbeddingBackward"},
               {embedding_case("equal tokens", -1, -1, tokens), embedding_case("padding", 3, -1, tokens),
                embedding_case("rows of a rank", -1, 2, tokens * 2),
                embedding_case("rows of a rank, padding", 6, 2, tokens * 2)}};
  for (const size_t padded : {1, 3})
    out.cases[padded].skipped = {{Check::gradient, "the row of the padding gets no gradient on purpose"}};
  return out;
}

at::Tensor plain_token_loss(const at::Tensor& logits, const at::Tensor& labels, double cap) {
  const at::Tensor capped = cap > 0 ? (logits / cap).tanh() * cap : logits;
  return at::cross_entropy_loss(capped, labels, {}, at::Reduction::Sum, -100).view({1});
}

at::Tensor labels_of(int64_t tokens, int64_t vocabulary) {
  at::Tensor labels = at::randint(vocabulary, {tokens}, at::kLong);
  labels.slice(0, 0, tokens, 3).fill_(-100);
  return labels;
}

Operator token_loss_operator() {
  const auto case_of = [](const std::string& name, int64_t tokens, int64_t vocabulary, double cap) {
    return OperatorCase{
        name,
        {{tokens, vocabulary}},
        [=](const Ins& in, const Ins& constants) { return Ins{model::token_loss(in[0], constants[0], cap)}; },
        [=](const Ins& in, const Ins& constants) { return Ins{plain_token_loss(in[0], constants[0], cap)}; },
        {labels_of(tokens, vocabulary)}};
  };
  return {"token_loss",
          {"TokenLossBackward"},
          {case_of("plain", 10, 131, 0), case_of("soft cap", 10, 31, 1.5), case_of("one token", 2, 3, 0)}};
}

Operator linear_token_loss_operator() {
  const auto case_of = [](const std::string& name, int64_t tokens, int64_t width, int64_t vocabulary,
                          double cap) {
    return OperatorCase{name,
                        {{tokens, width}, {vocabulary, width}},
                        [=](const Ins& in, const Ins& constants) {
                          return Ins{model::linear_token_loss(in[0], in[1], constants[0], cap)};
                        },
                        [=](const Ins& in, const Ins& constants) {
                          return Ins{plain_token_loss(at::linear(in[0], in[1]), constants[0], cap)};
                        },
                        {labels_of(tokens, vocabulary)},
                        // The forward pass also computes both gradients.
                        6.0 * static_cast<double>(tokens * width * vocabulary)};
  };
  return {"linear_token_loss",
          {"LinearTokenLossBackward"},
          {case_of("plain", 10, 12, 131, 0), case_of("soft cap", 10, 7, 31, 1.5)},
          {},
          false,
          3e-2,
          {case_of("512 tokens, 256 x 8192", 512, 256, 8192, 0)}};
}

Operator block_product_operator() {
  const auto case_of = [](const std::string& name, int64_t tokens, int64_t blocks, int64_t in, int64_t out) {
    return OperatorCase{
        name,
        {{tokens, blocks * in}, {blocks * out, in}},
        [=](const Ins& all, const Ins&) { return Ins{decoder::block_product(all[0], all[1], blocks)}; },
        [=](const Ins& all, const Ins&) {
          const at::Tensor x = all[0].view({tokens, blocks, in});
          const at::Tensor weight = all[1].view({blocks, out, in});
          return Ins{at::einsum("tbi,boi->tbo", {x, weight}).flatten(1)};
        },
        {},
        2.0 * tokens * blocks * in * out};
  };
  return {"block_product",
          {"BlockProductBackward"},
          {case_of("three blocks", 7, 3, 5, 4), case_of("one block", 3, 1, 6, 2)}};
}

}  // namespace

std::vector<Operator> product_operators() {
  return {linear_operator(),      linear_onto_operator(),       call_each_operator(),
          products_by_operator(), autocast_operator(),          embedding_operator(),
          token_loss_operator(),  linear_token_loss_operator(), block_product_operator()};
}

}  // namespace heddle::tests
