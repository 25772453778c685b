// Attention split over ranks by every method equals that of one rank: documents, windows, soft caps, sinks,
// full attention, and values with another width.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/transport/threads.h"
#include "plugins/training_world.h"

namespace heddle::tests {
namespace {

constexpr int64_t kHeads = 4, kRows = 2, kLength = 45, kHeadDim = 6;

struct AttentionCase {
  std::string name;
  AttentionOptions options;
  std::vector<int> documents;  // empty: no documents
  bool sinks = false;
};

const std::vector<AttentionCase> kAttentionCases = {
    {"causal", {}, {}},
    {"documents", {}, {0, 31, 45, 46, 70, 90}},
    {"documents that divide", {}, {0, 16, 32, 40, 48, 80}},  // of rows of 40
    {"full", {.causal = false}, {}},
    {"full documents", {.causal = false}, {0, 9, 45, 90}},
    {"window", {.window = 7}, {0, 31, 45, 90}},
    {"soft cap", {.soft_cap = 1.5}, {0, 31, 45, 90}},
    {"values of another width", {.value_dim = 10}, {0, 31, 45, 90}},
    {"sinks", {.window = 11}, {0, 31, 45, 90}, true},
};

class OneCore : public Module {
 public:
  explicit OneCore(const AttentionOptions& options) : core(kHeadDim, options) { add_child("core", core); }
  std::string_view kind() const override { return "one_core"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  AttentionCore core;

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override { return x; }
};

// Inputs q, k, v and the gradient of the output, or the output and the gradients of q, k, v and the sinks.
struct Numbers {
  std::vector<at::Tensor> rows;
  at::Tensor sinks;
};

Numbers numbers_of(const AttentionCase& one, int64_t tokens) {
  at::manual_seed(5);
  const int64_t values = one.options.value_dim > 0 ? one.options.value_dim : kHeadDim;
  Numbers out;
  for (const int64_t width : {kHeadDim, kHeadDim, values, values})
    out.rows.push_back(at::randn({tokens, kHeads * width}));
  if (one.sinks) out.sinks = at::randn({kHeads});
  return out;
}

Numbers results_of(AttentionCore& core, const Numbers& in, const Batch& batch) {
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < 3; ++i) leaves.push_back(in.rows[i].clone().set_requires_grad(true));
  at::Tensor sinks = in.sinks.defined() ? in.sinks.clone().set_requires_grad(true) : at::Tensor();
  const at::Tensor y = core.attend(leaves[0], leaves[1], leaves[2], batch, sinks);
  y.backward(in.rows[3]);
  return {{y.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()},
          sinks.defined() ? sinks.grad() : at::Tensor()};
}

Batch batch_of(const AttentionCase& one) {
  Batch batch;
  const int64_t length = one.name == "documents that divide" ? 40 : kLength;
  batch.tokens =
      at::arange(1, kRows * length + 1).view({kRows, length});  // each token is its position, from 1
  if (!one.documents.empty()) batch.documents = at::tensor(one.documents, at::kInt);
  return batch;
}

// Returns this rank's rows, with zeros for padding.
Numbers part_of(const Numbers& whole, const at::Tensor& places) {
  Numbers out{{}, whole.sinks};
  for (const at::Tensor& rows : whole.rows)
    out.rows.push_back(at::cat({at::zeros({1, rows.size(1)}), rows}).index_select(0, places));
  return out;
}

void expect_equal_parts(const AttentionCase& one, const std::string& method, int cp) {
  const Batch whole = batch_of(one);
  const Numbers in = numbers_of(one, whole.tokens.numel());
  AttentionCore alone(kHeadDim, one.options);
  const Numbers want = results_of(alone, in, whole);
  at::Tensor sinks = one.sinks ? at::zeros({kHeads}) : at::Tensor();
  std::mutex mutex;
  ThreadWorld::run(cp, [&](Rendezvous& rendezvous) {
    const std::vector<Axis> axes = {{"cp", cp}};
    const DeviceMesh mesh = mesh::build(axes, rendezvous, "test: context");
    auto module = std::make_unique<OneCore>(one.options);
    AttentionCore& core = module->core;
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("unit", "", std::move(module)));
    const auto parallelizer = make_parallelizer("context", "context: {method: " + method + "}");
    parallelizer->apply(units, mesh);
    Batch batch = whole;
    parallelizer->transform(batch, mesh);
    const at::Tensor places = batch.tokens.view({-1});
    const Numbers got = results_of(core, part_of(in, places), batch), own = part_of(want, places);
    const std::lock_guard lock(mutex);
    const at::Tensor real = (places > 0).unsqueeze(1);
    for (size_t i = 0; i < own.rows.size(); ++i)
      EXPECT_TRUE(at::allclose(got.rows[i] * real, own.rows[i], 1e-4, 1e-5)) << i;
    if (one.sinks) sinks += got.sinks;
  });
  if (one.sinks) {
    EXPECT_TRUE(at::allclose(sinks, want.sinks, 1e-4, 1e-5));
  }
}

TEST(ContextAttention, EqualsOneRankUnderEveryMask) {
  for (const AttentionCase& one : kAttentionCases)
    for (const std::string method : {"allgather", "ring", "ulysses", "ring_ulysses"})
      for (const int cp : {2, 4}) {
        SCOPED_TRACE(one.name + " " + method + " " + std::to_string(cp));
        expect_equal_parts(one, method, cp);
      }
}

// Outputs and gradients of this rank's tokens, and whether each token is in the first document.
struct Part {
  Numbers numbers;
  at::Tensor places;
};

std::vector<Part> parts_of(const Numbers& in, const Batch& whole, const std::string& method, int cp) {
  std::vector<Part> out(static_cast<size_t>(cp));
  ThreadWorld::run(cp, [&](Rendezvous& rendezvous) {
    const std::vector<Axis> axes = {{"cp", cp}};
    const DeviceMesh mesh = mesh::build(axes, rendezvous, "test: context");
    auto module = std::make_unique<OneCore>(AttentionOptions{});
    AttentionCore& core = module->core;
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("unit", "", std::move(module)));
    const auto parallelizer = make_parallelizer("context", "context: {method: " + method + "}");
    parallelizer->apply(units, mesh);
    Batch batch = whole;
    parallelizer->transform(batch, mesh);
    const at::Tensor places = batch.tokens.view({-1}).clone();
    out[static_cast<size_t>(rendezvous.rank())] = {results_of(core, part_of(in, places), batch), places};
  });
  return out;
}

TEST(ContextAttention, KeepsTheBitsOfADocumentWhenAnotherChanges) {
  constexpr int kChanged = 31;  // tokens of the first document
  const AttentionCase one{"documents", {}, {0, kChanged, 45, 46, 70, 90}};
  const Batch whole = batch_of(one);
  const Numbers in = numbers_of(one, whole.tokens.numel());
  Numbers changed;
  for (const at::Tensor& rows : in.rows) {
    changed.rows.push_back(rows.clone());
    changed.rows.back().narrow(0, 0, kChanged).mul_(-3).add_(1);
  }
  for (const std::string method : {"allgather", "ring", "ulysses", "ring_ulysses"})
    for (const int cp : {2, 4}) {
      SCOPED_TRACE(method + " " + std::to_string(cp));
      const std::vector<Part> before = parts_of(in, whole, method, cp),
                              after = parts_of(changed, whole, method, cp);
      for (size_t rank = 0; rank < before.size(); ++rank) {
        const at::Tensor others = before[rank].places > kChanged, mine = (before[rank].places > 0) & ~others;
        for (size_t i = 0; i < before[rank].numbers.rows.size(); ++i) {
          const at::Tensor &was = before[rank].numbers.rows[i], &is = after[rank].numbers.rows[i];
          EXPECT_TRUE(at::equal(was.index({others}), is.index({others}))) << i;
          if (mine.any().item<bool>()) {
            EXPECT_FALSE(at::equal(was.index({mine}), is.index({mine}))) << i;
          }
        }
      }
    }
}

}  // namespace
}  // namespace heddle::tests
