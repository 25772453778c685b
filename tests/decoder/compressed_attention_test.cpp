// Attention over a window and compressed entries equals plain operators in value and gradients, also for
// packed documents and in token-by-token generation.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"
#include "heddle/model/autocast.h"
#include "tests/decoder/generated.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

using decoder::CompressedAttention;
using ::testing::HasSubstr;
using Values = std::map<std::string, at::Tensor>;

struct CompressedForm {
  std::string name;
  CompressedAttention form;
};

CompressedAttention small(int64_t rate, bool overlapped, int64_t top_k) {
  CompressedAttention form;
  form.heads = 4, form.head_dim = 6, form.rotary = 4, form.query_rank = 5;
  form.output_groups = 2, form.output_rank = 3, form.window = 4, form.theta = 50;
  form.rate = rate, form.overlapped = overlapped;
  form.index_heads = 9, form.index_head_dim = 8, form.index_top_k = top_k;
  return form;
}

const CompressedForm kCompressed[] = {
    {"window", small(0, false, 0)}, {"heavy", small(3, false, 0)},         {"overlapped", small(2, true, 0)},
    {"sparse", small(2, true, 2)},  {"sparse_of_all", small(2, true, 40)}, {"one_token", small(1, true, 3)}};

constexpr int64_t kWidth12 = 12;
const std::string kAt = "model.layers.0.self_attn.";

Units compressed_units(const CompressedAttention& form, at::ScalarType dtype = at::kDouble) {
  decoder::Model model;
  model.vocabulary = 13, model.width = kWidth12, model.init_std = 0.4;
  model.layers = {{decoder::compressed_attention(form), decoder::Absent()}};
  at::manual_seed(8);
  Units units = decoder::make_spec({.model = model})->make_units(at::TensorOptions(dtype));
  const at::NoGradGuard no_gradients;
  for (ParameterSlot& slot : units[1]->parameters())
    if (slot.tensor->dim() == 1 || slot.name.ends_with("bias"))
      slot.tensor->add_(at::randn_like(*slot.tensor), 0.3);
  return units;
}

Values values_of_layer(const Units& units) {
  Values out;
  for (ParameterSlot& slot : units[1]->parameters())
    out[slot.name] = slot.tensor->detach().clone().set_requires_grad(true);
  return out;
}

// Plain-operator reference for one document.
class PlainCompressed {
 public:
  PlainCompressed(const CompressedAttention& form, const Values& values) : form_(form), values_(values) {}

  // x: [tokens, width], before the layer's norm.
  at::Tensor layer(const at::Tensor& x) const {
    const at::Tensor in = normal(x, values_.at("model.layers.0.input_layernorm.weight"));
    return x + attention(in);
  }

 private:
  at::Tensor of(const std::string& name) const { return values_.at(kAt + name); }
  at::Tensor product(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, of(name + ".weight").t());
  }
  at::Tensor normal(const at::Tensor& x, const at::Tensor& weight) const {
    return x * (x.square().mean(-1, true) + form_.eps).rsqrt() * weight;
  }
  // Rotates the last columns of x [rows, any, dim] by the angles of `positions`.
  at::Tensor turned(const at::Tensor& x, const at::Tensor& positions, double sign = 1) const {
    const int64_t rotary = form_.rotary, dim = x.size(-1);
    const at::Tensor powers = at::arange(0, rotary, 2, at::kDouble) / static_cast<double>(rotary);
    const at::Tensor angles = (positions.unsqueeze(1) / at::pow(form_.theta, powers)).unsqueeze(1);
    const at::Tensor part = x.narrow(-1, dim - rotary, rotary);
    const at::Tensor a = part.slice(-1, 0, rotary, 2), b = part.slice(-1, 1, rotary, 2);
    const at::Tensor cos = angles.cos(), sin = angles.sin() * sign;
    return at::cat(
        {x.narrow(-1, 0, dim - rotary), at::stack({a * cos - b * sin, b * cos + a * sin}, -1).flatten(-2)},
        -1);
  }
  // Returns the rotated entries [entries, dim] of the compressor at `prefix`.
  at::Tensor entries(const at::Tensor& x, const std::string& prefix, int64_t dim) const {
    const at::Tensor kv = product(x, prefix + "kv_proj"), gate = product(x, prefix + "gate_proj");
    const at::Tensor bias = of(prefix + "position_bias");
    std::vector<at::Tensor> out;
    for (int64_t first = 0; first + form_.rate <= x.size(0); first += form_.rate) {
      const int64_t own = form_.overlapped ? dim : 0;
      std::vector<at::Tensor> values{kv.narrow(0, first, form_.rate).narrow(1, own, dim)};
      std::vector<at::Tensor> scores{(gate.narrow(0, first, form_.rate) + bias).narrow(1, own, dim)};
      if (form_.overlapped && first > 0) {
        values.push_back(kv.narrow(0, first - form_.rate, form_.rate).narrow(1, 0, dim));
        scores.push_back((gate.narrow(0, first - form_.rate, form_.rate) + bias).narrow(1, 0, dim));
      }
      out.push_back((at::softmax(at::cat(scores), 0) * at::cat(values)).sum(0));
    }
    const at::Tensor all = normal(at::stack(out), of(prefix + "kv_norm.weight"));
    const at::Tensor positions = at::arange(all.size(0), at::kDouble) * form_.rate;
    return turned(all.unsqueeze(1), positions).squeeze(1);
  }
  // Returns a mask [tokens, entries] that is true where a token must not see an entry.
  at::Tensor hidden_entries(const at::Tensor& x, const at::Tensor& of_queries, int64_t count) const {
    const at::Tensor complete = (at::arange(x.size(0)) + 1).div(form_.rate, "floor").unsqueeze(1);
    const at::Tensor later = at::arange(count).unsqueeze(0).ge(complete);
    if (form_.index_top_k == 0) return later;
    const int64_t dim = form_.index_head_dim;
    const at::Tensor keys = entries(x, "compressor.indexer.", dim);
    const at::Tensor q = turned(product(of_queries, "compressor.indexer.q_b_proj").view({x.size(0), -1, dim}),
                                at::arange(x.size(0), at::kDouble));
    const at::Tensor each = at::relu(at::matmul(q, keys.t())) / std::sqrt(static_cast<double>(dim));
    const at::Tensor weights = product(x, "compressor.indexer.scorer.weights_proj");
    const at::Tensor scores = (each * weights.unsqueeze(2)).sum(1).masked_fill(later, -1e30);
    const int64_t k = std::min(form_.index_top_k, count);
    const at::Tensor best = std::get<1>(at::topk(scores, k, 1));
    return at::ones_like(later).scatter_(1, best, false).logical_or_(later);
  }
  at::Tensor attention(const at::Tensor& x) const {
    const int64_t tokens = x.size(0), dim = form_.head_dim;
    const at::Tensor positions = at::arange(tokens, at::kDouble);
    const at::Tensor of_queries = normal(product(x, "q_a_proj"), of("q_a_norm.weight"));
    const at::Tensor heads = product(of_queries, "q_b_proj").view({tokens, form_.heads, dim});
    const at::Tensor q = turned(normal(heads, at::ones({dim}, at::kDouble)), positions);
    at::Tensor keys =
        turned(normal(product(x, "kv_proj"), of("kv_norm.weight")).unsqueeze(1), positions).squeeze(1);
    at::Tensor hidden = at::ones({tokens, tokens}, at::kBool)
                            .triu(1)
                            .logical_or(at::ones({tokens, tokens}, at::kBool).tril(-form_.window));
    if (form_.rate > 0 && tokens >= form_.rate) {
      const at::Tensor more = entries(x, "compressor.", dim);
      keys = at::cat({keys, more});
      hidden = at::cat({hidden, hidden_entries(x, of_queries, more.size(0))}, 1);
    }
    const at::Tensor scores = (at::matmul(q.transpose(0, 1), keys.t()) / std::sqrt(static_cast<double>(dim)))
                                  .masked_fill(hidden, -1e30);
    const at::Tensor sinks = of("sinks").view({-1, 1, 1}).expand({-1, tokens, 1});
    const at::Tensor weights = at::softmax(at::cat({scores, sinks}, 2), 2).narrow(2, 0, keys.size(0));
    const at::Tensor y = turned(at::matmul(weights, keys).transpose(0, 1), positions, -1).flatten(1);
    std::vector<at::Tensor> groups;
    const int64_t columns = y.size(1) / form_.output_groups;
    for (int64_t group = 0; group < form_.output_groups; ++group)
      groups.push_back(
          at::matmul(y.narrow(1, group * columns, columns),
                     of("o_a_proj.weight").narrow(0, group * form_.output_rank, form_.output_rank).t()));
    return product(at::cat(groups, 1), "o_b_proj");
  }

  const CompressedAttention& form_;
  const Values& values_;
};

class Compressed : public ::testing::TestWithParam<CompressedForm> {};

void expect_near_plain(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  // RoPE angles are float32.
  const double scale = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got - want).abs().max().item<double>(), 2e-6 * scale) << what;
}

// lengths: document lengths in two rows of 11 tokens.
void expect_plain(const CompressedAttention& form, const std::vector<int64_t>& lengths) {
  Units units = compressed_units(form);
  const Values values = values_of_layer(units);
  const at::Tensor x = at::randn({22, kWidth12}, at::kDouble).set_requires_grad(true);
  const at::Tensor ours = x.detach().clone().set_requires_grad(true),
                   d = at::randn({22, kWidth12}, at::kDouble);
  Batch batch;
  batch.tokens = at::zeros({2, 11}, at::kLong);
  std::vector<at::Tensor> each;
  std::vector<int32_t> begins{0};
  const PlainCompressed plain(form, values);
  for (const int64_t length : lengths) {
    each.push_back(plain.layer(x.narrow(0, begins.back(), length)));
    begins.push_back(begins.back() + static_cast<int32_t>(length));
  }
  if (lengths.size() > 2) batch.documents = at::tensor(begins, at::kInt);
  const at::Tensor want = at::cat(each), got = units[1]->forward({ours}, batch)[0];
  expect_near_plain(got.detach(), want.detach(), "output");
  (want * d).sum().backward();
  (got * d).sum().backward();
  expect_near_plain(ours.grad(), x.grad(), "input");
  for (ParameterSlot& slot : units[1]->parameters()) {
    const at::Tensor gradient = values.at(slot.name).grad();
    EXPECT_EQ(slot.name.find("indexer") == std::string::npos, slot.trainable()) << slot.name;
    if (!slot.trainable()) continue;
    ASSERT_TRUE(slot.tensor->grad().defined()) << slot.name;
    if (gradient.defined())
      expect_near_plain(slot.tensor->grad(), gradient, slot.name);
    else
      EXPECT_EQ(slot.tensor->grad().abs().max().item<double>(), 0) << slot.name;
  }
}

TEST_P(Compressed, EqualsPlainOperators) {
  expect_plain(GetParam().form, {11, 11});
}

// Documents of one token, shorter than one compressed entry, and of several entries.
TEST_P(Compressed, BeginsAgainWithEachDocument) {
  expect_plain(GetParam().form, {1, 8, 2, 5, 6});
  expect_plain(GetParam().form, std::vector<int64_t>(22, 1));
}

TEST_P(Compressed, GivesTheSameTokensOneByOne) {
  Units whole = compressed_units(GetParam().form, at::kFloat),
        kept = compressed_units(GetParam().form, at::kFloat);
  expect_same_tokens(whole, kept, 12, 16);
}

// Norms and products differ in dtype under autocast. An indexer may select other entries: loose tolerance.
TEST_P(Compressed, ComputesUnderAutocast) {
  Units wide = compressed_units(GetParam().form, at::kFloat),
        narrow = compressed_units(GetParam().form, at::kFloat);
  at::manual_seed(9);
  const at::Tensor x = at::randn({11, kWidth12}), d = at::randn({11, kWidth12});
  Batch batch;
  batch.tokens = at::zeros({1, 11}, at::kLong);
  const at::Tensor want = wide[1]->forward({x}, batch)[0];
  model::Autocast autocast(at::kBFloat16, model::Autocast::Weights::kept);
  at::Tensor got;
  {
    const model::Autocast::Scope scope(&autocast);
    got = narrow[1]->forward({x}, batch)[0];
  }
  (want * d).sum().backward();
  (got * d).sum().backward();
  const bool same = GetParam().form.index_top_k == 0 || GetParam().form.index_top_k > 11;
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>();
  };
  EXPECT_LE(distance(got.detach(), want.detach()), same ? 2e-2 : 1);
  const auto there = wide[1]->parameters();
  for (size_t i = 0; i < there.size(); ++i) {
    const ParameterSlot slot = narrow[1]->parameters()[i];
    if (!slot.trainable() || there[i].tensor->grad().norm().item<double>() == 0) continue;
    EXPECT_EQ(slot.tensor->grad().scalar_type(), at::kFloat) << slot.name;
    EXPECT_LE(distance(slot.tensor->grad(), there[i].tensor->grad()), same ? 5e-2 : 3) << slot.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Compressed, ::testing::ValuesIn(kCompressed),
                         [](const auto& info) { return info.param.name; });

TEST(CompressedAttentions, RefuseSizesThatDoNotFit) {
  const auto refusal = [](const std::function<void(CompressedAttention&)>& change) {
    CompressedAttention form = small(2, true, 2);
    change(form);
    return thrown_by([&] { decoder::compressed_attention(form); });
  };
  EXPECT_THAT(refusal([](auto& form) { form.rotary = 3; }),
              HasSubstr("rotates 3 of the 6 elements of a head"));
  EXPECT_THAT(refusal([](auto& form) { form.index_head_dim = 2; }),
              HasSubstr("rotates 4 of the 2 elements of an indexer's head"));
  EXPECT_THAT(refusal([](auto& form) { form.output_groups = 3; }),
              HasSubstr("has 4 heads in 3 groups, which do not divide them"));
  EXPECT_THAT(refusal([](auto& form) { form.rate = 0; }), HasSubstr("has an indexer but no entries"));
}

}  // namespace
}  // namespace heddle::tests
