// Attention operators: masks, selected keys, dropout, latent heads, key selection, compressed entries.
#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/nn/attention_core.h"
#include "heddle/nn/dropout.h"
#include "lib/decoder/compressed/entry_table.h"
#include "lib/decoder/compressed/pooled_entries.h"
#include "lib/decoder/compressed/window_attention.h"
#include "lib/decoder/latent/choose_keys.h"
#include "lib/decoder/latent/latent_heads.h"
#include "operators/operator.h"

namespace heddle::tests {
namespace {

using Ins = OperatorTensors;
using Check = OperatorCheck;

constexpr double kHidden = -std::numeric_limits<double>::infinity();

struct AttentionShape {
  std::string name;
  int64_t batch, sequence, head_dim;
  AttentionOptions options;
  std::vector<int> documents = {};  // empty: each row is one document
  int64_t queries_of_key = 1;
  bool sinks = false, drops = false;
  int64_t chosen = 0;  // keys per query; 0: all visible keys

  int64_t tokens() const { return batch * sequence; }
  model::Heads heads() const { return {batch, sequence, head_dim, options, {}}; }
};

constexpr int64_t kKeyHeads = 2;
constexpr uint64_t kDropSalt = 5;

// Returns the document index of each token.
at::Tensor document_of_tokens(int64_t tokens, int64_t sequence, const std::vector<int>& begins) {
  at::Tensor document = at::arange(tokens).div(sequence, "floor");
  for (const int begin : begins) document += (at::arange(tokens) >= begin).to(at::kLong);
  return document;
}

// Returns a mask [tokens, tokens] that is true where a query sees a key.
at::Tensor sight_of_shape(const AttentionShape& of) {
  const at::Tensor document = document_of_tokens(of.tokens(), of.sequence, of.documents);
  const at::Tensor away = at::arange(of.tokens()).unsqueeze(1) - at::arange(of.tokens());
  at::Tensor seen = document.unsqueeze(1) == document;
  if (of.options.causal) seen = seen.logical_and(away >= 0);
  if (of.options.window > 0) seen = seen.logical_and(away.abs() < of.options.window);
  return seen;
}

// Returns the dropout factors of the attention weights [heads, tokens, tokens].
at::Tensor kept_weights(const AttentionShape& of, const at::Tensor& draws, int64_t heads) {
  constexpr int64_t kSaltOfHead = 0x1E3779B97F4A7C15;
  Ins all;
  for (int64_t head = 1; head <= heads; ++head)
    all.push_back(
        model::uniform_draws(draws + head * kSaltOfHead, of.sequence, kDropSalt).repeat({1, of.batch}));
  return at::stack(all).ge(of.options.dropout).to(at::kDouble) / (1 - of.options.dropout);
}

// Reference attention with the full score matrix.
at::Tensor plain_scores_attention(const AttentionShape& of, const Ins& in, const Ins& constants) {
  const auto split = [&](const at::Tensor& x, int64_t dim, int64_t repeats) {
    return x.view({of.tokens(), -1, dim}).transpose(0, 1).repeat_interleave(repeats, 0);
  };
  const at::Tensor q = split(in[0], of.head_dim, 1), k = split(in[1], of.head_dim, of.queries_of_key);
  const at::Tensor v = split(in[2], of.heads().value_dim(), of.queries_of_key);
  at::Tensor scores = q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(of.head_dim));
  if (const double cap = of.options.soft_cap; cap > 0) scores = (scores / cap).tanh() * cap;
  at::Tensor seen = sight_of_shape(of);
  if (of.chosen > 0)
    seen = at::zeros_like(seen).scatter_(1, constants[1].to(at::kLong), true).logical_and(seen);
  scores = scores.masked_fill(seen.logical_not(), kHidden);
  if (of.sinks) scores = at::cat({scores, in[3].view({-1, 1, 1}).expand({-1, of.tokens(), 1})}, 2);
  at::Tensor weights = scores.softmax(2).narrow(2, 0, of.tokens());
  if (of.drops) weights = weights * kept_weights(of, constants.back(), weights.size(0));
  return weights.matmul(v).transpose(0, 1).reshape({of.tokens(), -1});
}

// Returns, per token, its own key and some earlier keys of its document.
at::Tensor choice_of_keys(const AttentionShape& of) {
  const at::Tensor own = at::arange(of.tokens(), at::kInt).unsqueeze(1);
  const at::Tensor document = document_of_tokens(of.tokens(), of.sequence, of.documents);
  const at::Tensor before = own - at::randint(1, 6, {of.tokens(), of.chosen - 1}, at::kInt);
  const at::Tensor same = at::index_select(document, 0, before.clamp_min(0).flatten()).view(before.sizes()) ==
                          document.unsqueeze(1);
  const at::Tensor seen = before.ge(0).logical_and(same);
  return at::cat({own, at::where(seen, before, own.expand(before.sizes()))}, 1).contiguous();
}

OperatorCase attention_case(const AttentionShape& of) {
  const int64_t heads = kKeyHeads * of.queries_of_key, tokens = of.tokens();
  OperatorCase out{of.name,
                   {{tokens, heads * of.head_dim},
                    {tokens, kKeyHeads * of.head_dim},
                    {tokens, kKeyHeads * of.heads().value_dim()}},
                   {}};
  if (of.sinks) out.inputs.push_back({heads});
  out.constants = {of.documents.empty() ? at::Tensor() : at::tensor(of.documents, at::kInt)};
  if (of.chosen > 0) out.constants.push_back(choice_of_keys(of));
  if (of.drops) out.constants.push_back(at::arange(tokens, at::kLong) * 7 + 3);
  out.run = [of](const Ins& in, const Ins& constants) {
    model::Heads shape = of.heads();
    if (of.sinks) shape.sinks = in[3];
    if (of.chosen > 0) shape.chosen = constants[1];
    if (of.drops) shape.draws = constants.back(), shape.salt = kDropSalt;
    return Ins{model::attend(in[0], in[1], in[2], shape, constants[0])};
  };
  out.plain = [of](const Ins& in, const Ins& constants) {
    return Ins{plain_scores_attention(of, in, constants)};
  };
  if (of.documents.empty())
    out.products = sight_of_shape(of).sum().item<double>() * 2.0 *
                   static_cast<double>(heads * (of.head_dim + of.heads().value_dim()));
  return out;
}

AttentionOptions options_of(bool causal, int64_t window = 0, double cap = 0, int64_t value_dim = 0) {
  return {causal, window, 0, cap, value_dim};
}

// Sizes around tile and key block sizes.
Operator attend_operator() {
  const std::vector<AttentionShape> shapes = {
      {"causal", 2, 71, 6, options_of(true), {}, 2},
      {"full", 2, 71, 6, options_of(false), {}, 2},
      {"long", 1, 331, 20, options_of(true)},
      {"longer than a tile sees at once", 1, 613, 20, options_of(true)},
      {"documents", 2, 101, 16, options_of(true), {0, 1, 7, 70, 101, 164, 165, 202}, 3},
      {"full documents", 1, 150, 17, options_of(false), {0, 60, 61, 149, 150}},
      {"window", 1, 203, 8, options_of(true, 37), {}, 2},
      {"as many as a tile sees at once", 1, 512, 16, options_of(false)},
      {"wide window", 1, 643, 16, options_of(true, 400), {}, 2},
      {"long window", 1, 643, 16, options_of(true, 37), {}, 2},
      {"full window", 1, 203, 8, options_of(false, 5), {0, 90, 203}, 2},
      {"full window of rows", 2, 71, 6, options_of(false, 9)},
      {"soft cap", 1, 97, 33, options_of(true, 0, 1.5), {0, 40, 97}},
      {"values of another width", 2, 83, 24, options_of(true, 0, 0, 11), {}, 2},
      {"sinks", 2, 83, 12, options_of(true, 19), {0, 50, 83, 166}, 2, true},
  };
  Operator out{"attend", {"AttentionBackward"}, {}};
  for (const AttentionShape& shape : shapes) out.cases.push_back(attention_case(shape));
  out.in_half = true;
  out.speed = {attention_case({"1024 tokens, 8 heads of 64", 1, 1024, 64, options_of(true), {}, 4})};
  return out;
}

Operator attend_chosen_operator() {
  Operator out{"attend_over_chosen_keys", {"AttentionBackward"}, {}};
  out.cases = {
      attention_case({"rows", 2, 11, 4, options_of(true, 0, 0, 5), {}, 1, false, false, 4}),
      attention_case({"documents", 2, 11, 4, options_of(true), {0, 2, 9, 11, 12, 22}, 2, true, false, 3})};
  return out;
}

Operator attend_dropout_operator() {
  AttentionOptions options = options_of(true);
  options.dropout = 0.3;
  Operator out{"attend_with_dropout", {"AttentionBackward"}, {}};
  out.cases = {attention_case({"rows", 2, 23, 6, options, {}, 2, false, true}),
               attention_case({"documents", 1, 23, 6, options, {0, 9, 23}, 1, false, true})};
  return out;
}

// Pair i of x [tokens, heads, 4] is elements 2 i and 2 i + 1, or i and i + 2.
at::Tensor turned_quarters(const at::Tensor& x, const Ins& angles, bool interleaved) {
  const auto pick = [&](int64_t i, int64_t which) {
    return x.select(2, interleaved ? 2 * i + which : i + 2 * which);
  };
  Ins out(4);
  for (const int64_t i : {0, 1}) {
    const at::Tensor c = angles[0].select(1, i).unsqueeze(1), s = angles[1].select(1, i).unsqueeze(1);
    const at::Tensor a = pick(i, 0), b = pick(i, 1);
    out[interleaved ? 2 * i : i] = a * c - b * s;
    out[interleaved ? 2 * i + 1 : i + 2] = b * c + a * s;
  }
  return at::stack(out, 2);
}

Ins plain_latent_heads(const Ins& in, const Ins& angles, bool interleaved) {
  const at::Tensor q = in[0].view({7, 3, 9}), both = in[1].view({7, 3, 12});
  const at::Tensor last = q.narrow(2, 5, 4), shared = in[2].unsqueeze(1);
  const bool turns = !angles.empty();
  const at::Tensor turned_q =
      at::cat({q.narrow(2, 0, 5), turns ? turned_quarters(last, angles, interleaved) : last}, 2);
  const at::Tensor key = turns ? turned_quarters(shared, angles, interleaved) : shared;
  const at::Tensor k = at::cat({both.narrow(2, 0, 5), key.expand({7, 3, 4})}, 2);
  return {turned_q.flatten(1), k.flatten(1), both.narrow(2, 5, 7).flatten(1)};
}

Operator assemble_heads_operator() {
  Operator out{"assemble_heads", {"LatentHeadsBackward"}, {}};
  const at::Tensor turns = at::arange(14, at::kFloat).view({7, 2}) * 0.37;
  for (const bool rotated : {true, false})
    for (const bool interleaved : {true, false}) {
      const Ins angles = rotated ? Ins{turns.cos(), turns.sin()} : Ins{};
      out.cases.push_back(
          {std::string(rotated ? "rotated" : "not rotated") + (interleaved ? " pairs" : " halves"),
           {{7, 27}, {7, 36}, {7, 4}},
           [=](const Ins& in, const Ins& constants) {
             model::RotaryAngles given;
             if (rotated) given = {constants[0], constants[1]};
             const decoder::LatentHeads heads =
                 decoder::assemble_heads(in[0], in[1], in[2], given, {3, 5, 4, 7, interleaved});
             return Ins{heads.q, heads.k, heads.v};
           },
           [=](const Ins& in, const Ins& constants) {
             return plain_latent_heads(in, constants, interleaved);
           },
           angles});
    }
  return out;
}

Operator split_latent_operator() {
  return {"split_latent",
          {"SplitLatentBackward"},
          {{"six and four",
            {{7, 10}},
            [](const Ins& in, const Ins&) {
              const auto [latent, key] = decoder::split_latent(in[0], 4);
              return Ins{latent, key * 1};
            },
            [](const Ins& in, const Ins&) {
              return Ins{in[0].narrow(1, 0, 6), in[0].narrow(1, 6, 4)};
            }}}};
}

Operator choose_keys_operator() {
  Operator out{"choose_keys", {}, {}};
  constexpr int64_t kTokens = 22;
  for (const std::vector<int>& documents : {std::vector<int>{}, {0, 2, 9, 11, 12, 22}}) {
    const AttentionShape shape{"", 2, 11, 4, options_of(true), documents};
    const auto run = [](const Ins& in, const Ins& constants) {
      const at::Tensor keys = decoder::choose_keys({in[0], in[1], in[2]}, 2, 11, constants[0], 4);
      if (keys.is_meta()) return Ins{keys, at::empty({kTokens, kTokens}, keys.options().dtype(at::kBool))};
      return Ins{keys, at::zeros({kTokens, kTokens}, keys.options().dtype(at::kBool))
                           .scatter_(1, keys.to(at::kLong), true)};
    };
    out.cases.push_back({documents.empty() ? "rows" : "documents",
                         {{kTokens, 3 * 4}, {kTokens, 4}, {kTokens, 3}},
                         run,
                         {},
                         {documents.empty() ? at::Tensor() : at::tensor(documents, at::kInt)}});
  }
  const char* const discrete = "the choice of keys is discrete and has no gradient";
  out.skipped = {{Check::formula, "ChooseKeys of sparse_latent_test.cpp compares each query with a sort"},
                 {Check::gradient, discrete},
                 {Check::bfloat16, "rounded scores may choose other keys"},
                 {Check::recomputation, "nothing is kept for a backward"},
                 {Check::subsets, discrete}};
  return out;
}

// Two rows of 11 tokens.
Batch rows_of_eleven(const Ins& constants, const at::Tensor& like) {
  Batch batch;
  batch.tokens = at::zeros({2, 11}, like.options().dtype(at::kLong).requires_grad(false));
  batch.documents = constants[0];
  return batch;
}

struct EntryShape {
  std::string name;
  int64_t rate;
  bool overlap;
  std::vector<int> documents = {};
  int64_t chosen = 0;
};

// Returns the first token of each entry, and whether it begins a document.
std::vector<std::pair<int64_t, bool>> plain_entries(const EntryShape& of) {
  std::vector<int> begins = of.documents.empty() ? std::vector<int>{0, 11, 22} : of.documents;
  std::vector<std::pair<int64_t, bool>> out;
  for (size_t i = 0; i + 1 < begins.size(); ++i)
    for (int64_t first = begins[i]; first + of.rate <= begins[i + 1]; first += of.rate)
      out.emplace_back(first, first == begins[i]);
  return out;
}

at::Tensor plain_pooled(const EntryShape& of, const Ins& in) {
  Ins out;
  for (const auto& [first, opens] : plain_entries(of)) {
    const int64_t width = in[0].size(1) / (of.overlap ? 2 : 1), own = of.overlap ? width : 0;
    const auto part = [&](const at::Tensor& x, int64_t row, int64_t column) {
      return x.narrow(0, row, of.rate).narrow(1, column, width);
    };
    Ins values{part(in[0], first, own)}, scores{part(in[1], first, own) + part(in[2], 0, own)};
    if (of.overlap && !opens) {
      values.push_back(part(in[0], first - of.rate, 0));
      scores.push_back(part(in[1], first - of.rate, 0) + part(in[2], 0, 0));
    }
    out.push_back((at::softmax(at::cat(scores), 0) * at::cat(values)).sum(0));
  }
  return at::stack(out);
}

const std::vector<int> kElevenDocuments = {0, 1, 9, 11, 16, 22};

Operator pooled_entries_operator() {
  Operator out{"pooled_entries", {"PooledEntriesBackward"}, {}};
  for (const EntryShape& of : {EntryShape{"apart", 3, false}, EntryShape{"overlapped", 2, true},
                               EntryShape{"apart in documents", 3, false, kElevenDocuments},
                               EntryShape{"overlapped in documents", 2, true, kElevenDocuments}}) {
    const int64_t width = of.overlap ? 10 : 5;
    out.cases.push_back({of.name,
                         {{22, width}, {22, width}, {of.rate, width}},
                         [of](const Ins& in, const Ins& constants) {
                           decoder::EntryTables tables(of.rate, 4);
                           const auto& table = tables.of(rows_of_eleven(constants, in[0]), in[0]);
                           return Ins{decoder::pooled_entries(in[0], in[1], in[2], table, of.overlap)};
                         },
                         [of](const Ins& in, const Ins&) { return Ins{plain_pooled(of, in)}; },
                         {of.documents.empty() ? at::Tensor() : at::tensor(of.documents, at::kInt)}});
    if (!of.documents.empty())
      out.cases.back().skipped = {{Check::meta, "documents say how many entries there are"}};
  }
  return out;
}

constexpr int64_t kWindowHeads = 3, kWindowDim = 6, kWindowTokens = 4;

// Reference: one softmax over window tokens, entries and the sink. in: q, kv, entries (optional), sinks.
at::Tensor plain_window(const EntryShape& of, const Ins& in, const Ins& constants) {
  const at::Tensor document = document_of_tokens(22, 11, of.documents), place = at::arange(22);
  const at::Tensor away = place.unsqueeze(1) - place;
  at::Tensor seen =
      (document.unsqueeze(1) == document).logical_and(away >= 0).logical_and(away < kWindowTokens);
  at::Tensor keys = in[1];
  if (of.rate > 0) {
    std::vector<int64_t> last;
    for (const auto& [first, opens] : plain_entries(of)) last.push_back(first + of.rate - 1);
    const at::Tensor end = at::tensor(last, at::kLong);
    at::Tensor complete =
        (at::index_select(document, 0, end) == document.unsqueeze(1)).logical_and(end <= place.unsqueeze(1));
    if (of.chosen > 0)
      complete = at::zeros_like(complete).scatter_(1, constants[1].to(at::kLong), true).logical_and(complete);
    keys = at::cat({keys, in[2]});
    seen = at::cat({seen, complete}, 1);
  }
  const at::Tensor q = in[0].view({22, kWindowHeads, kWindowDim}).transpose(0, 1);
  const at::Tensor scores = (q.matmul(keys.t()) / std::sqrt(static_cast<double>(kWindowDim)))
                                .masked_fill(seen.logical_not(), kHidden);
  const at::Tensor sinks = in.back().view({-1, 1, 1}).expand({-1, 22, 1});
  const at::Tensor weights = at::cat({scores, sinks}, 2).softmax(2).narrow(2, 0, keys.size(0));
  return weights.matmul(keys).transpose(0, 1).reshape({22, -1});
}

OperatorCase window_case(const EntryShape& of) {
  const auto count = static_cast<int64_t>(of.rate > 0 ? plain_entries(of).size() : 0);
  OperatorCase out{of.name, {{22, kWindowHeads * kWindowDim}, {22, kWindowDim}}, {}};
  if (of.rate > 0) out.inputs.push_back({count, kWindowDim});
  out.inputs.push_back({kWindowHeads});
  out.constants = {of.documents.empty() ? at::Tensor() : at::tensor(of.documents, at::kInt)};
  if (of.chosen > 0) out.constants.push_back(at::randint(count, {22, of.chosen}, at::kInt));
  out.run = [of](const Ins& in, const Ins& constants) {
    decoder::EntryTables tables(of.rate, kWindowTokens);
    const auto& table = tables.of(rows_of_eleven(constants, in[0]), in[0]);
    return Ins{decoder::window_attention({in[0], in[1], of.rate > 0 ? in[2] : at::Tensor(), in.back(),
                                          of.chosen > 0 ? constants[1] : at::Tensor()},
                                         kWindowDim, table)};
  };
  out.plain = [of](const Ins& in, const Ins& constants) { return Ins{plain_window(of, in, constants)}; };
  return out;
}

Operator window_attention_operator() {
  Operator out{"window_attention", {"WindowAttentionBackward"}, {}};
  for (const EntryShape& of : {EntryShape{"window", 0, false}, EntryShape{"entries", 3, false},
                               EntryShape{"documents", 2, false, kElevenDocuments}})
    out.cases.push_back(window_case(of));
  return out;
}

}  // namespace

std::vector<Operator> attention_operators() {
  return {attend_operator(),         attend_chosen_operator(),   attend_dropout_operator(),
          assemble_heads_operator(), split_latent_operator(),    choose_keys_operator(),
          pooled_entries_operator(), window_attention_operator()};
}

}  // namespace heddle::tests
