// megatron_fsdp trains to the numbers of `single`, whatever is split.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "plugins/megatron_runs.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

TEST(MegatronFsdp, EqualsSingleOnOneToFourRanksWhateverIsSplit) {
  const Outcome want = train(llama_alone());
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int strategy = 0; strategy <= 3; ++strategy) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, zero " + std::to_string(strategy));
      expect_close(train(mfsdp(ranks, zero(strategy))), want);
    }
}

// In the toy no layers are joined to one product because of where their weights lie.
TEST(MegatronFsdp, EqualsSingleBitForBitOnOneRank) {
  const Outcome want = train(toy("single", {}));
  for (int strategy = 0; strategy <= 3; ++strategy)
    expect_bit_equal(train(toy_like(mfsdp(1, zero(strategy)))), want);
}

// Two ranks add two numbers, in whatever collective. Where gradients are split, microbatches add up after the
// sum over ranks and not before it.
TEST(MegatronFsdp, GivesGradientsOfTheSameBitsWhateverIsSplit) {
  for (const int microbatches : {1, 3}) {
    const auto gradients_of = [&](int strategy) {
      Training run = mfsdp(2, zero(strategy));
      run.microbatches = microbatches;
      return gradients(run);
    };
    const auto whole = gradients_of(0), split = gradients_of(3);
    ASSERT_GT(whole.size(), 20u);
    for (const auto& [name, tensor] : whole) {
      EXPECT_TRUE(at::equal(gradients_of(1).at(name), tensor)) << name;
      EXPECT_TRUE(at::equal(gradients_of(2).at(name), split.at(name))) << name;
      EXPECT_TRUE(microbatches != 1 || at::equal(split.at(name), tensor)) << name;
    }
    expect_same(split, whole);
  }
}

TEST(MegatronFsdp, AccumulatesThreeMicrobatchesAsOneBatch) {
  const Outcome want = train(llama_alone());
  for (const int ranks : {1, 2, 4})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, zero " + std::to_string(strategy));
      Training run = mfsdp(ranks, zero(strategy));
      run.microbatches = 3;
      expect_close(train(run), want);
    }
}

TEST(MegatronFsdp, EqualsSingleWithTiedEmbeddings) {
  Training whole = llama_alone();
  whole.model.tie_word_embeddings = true;
  const Outcome want = train(whole);
  for (int strategy = 0; strategy <= 3; ++strategy)
    for (const char* units : {"", "megatron_fsdp_unit_modules: [DecoderLayer, Embedding, Head]"})
      for (const int microbatches : {1, 3}) {
        SCOPED_TRACE(std::string("zero ") + std::to_string(strategy) + " " + units);
        Training run = mfsdp(2, zero(strategy, units));
        run.model.tie_word_embeddings = true;
        run.microbatches = microbatches;
        expect_close(train(run), want);
      }
}

TEST(MegatronFsdp, EqualsSingleWithFrozenParameters) {
  const std::vector<std::string> frozen = {"model.embed_tokens.weight",
                                           "model.layers.0.self_attn.q_proj.weight",
                                           "model.layers.1.mlp.gate_proj.weight", "model.norm.weight"};
  Training whole = llama_alone();
  whole.frozen = frozen;
  const Outcome want = train(whole);
  for (const int ranks : {1, 2, 3})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, zero " + std::to_string(strategy));
      Training run = mfsdp(ranks, zero(strategy));
      run.frozen = frozen;
      expect_close(train(run), want);
    }
}

TEST(MegatronFsdp, EqualsSingleWithUnitsComputedAgain) {
  const Outcome want = train(llama_alone());
  for (int strategy = 0; strategy <= 3; ++strategy)
    for (const int microbatches : {1, 3}) {
      SCOPED_TRACE(strategy);
      Training run = mfsdp(2, zero(strategy));
      run.checkpointing = ActivationCheckpointing::full;
      run.microbatches = microbatches;
      expect_close(train(run), want);
    }
}

TEST(MegatronFsdp, EqualsSingleUnderTensorParallelism) {
  Training whole = llama_alone();
  whole.model.num_attention_heads = 4, whole.model.num_key_value_heads = 2;
  const Outcome want = train(whole);
  for (int strategy = 0; strategy <= 3; ++strategy)
    for (const int dp : {1, 2}) {
      SCOPED_TRACE(std::to_string(dp) + " x 2 ranks, zero " + std::to_string(strategy));
      Training run = mfsdp(dp, zero(strategy));
      run.axes = mfsdp_axes(dp, 2);
      run.model.num_attention_heads = 4, run.model.num_key_value_heads = 2;
      run.parallelizers = {{"tensor", "sequence_parallel: true"}};
      expect_close(train(run), want);
    }
}

// 53 words and 23 columns over two ranks: what every rank has whole is cut at the same places all the same.
TEST(MegatronFsdp, AddsPartialGradientsUpWhereTensorParallelismSplitsUnevenly) {
  Training whole = four_heads("qwen3");
  const Outcome want = train(whole);
  for (int strategy = 0; strategy <= 3; ++strategy) {
    SCOPED_TRACE(strategy);
    Training run = whole;
    run.strategy = "megatron_fsdp";
    run.section = zero(strategy);
    run.axes = mfsdp_axes(2, 2);
    run.microbatches = 3;
    run.parallelizers = {{"tensor", kSequence}};
    expect_close(train(run), want);
  }
}

TEST(MegatronFsdp, EqualsSingleWithEveryFieldOfItsCommunication) {
  Training whole = llama_alone();
  whole.steps = 6;
  const Outcome want = train(whole);
  for (int strategy = 0; strategy <= 3; ++strategy)
    for (const char* more :
         {"overlap_grad_reduce: false", "overlap_param_gather: false", "average_in_collective: true",
          "disable_bucketing: true", "calculate_per_token_loss: true", "fsdp_double_buffer: true",
          "report_nan_in_param_grad: true", "grad_reduce_in_fp32: true", "preserve_fp32_weights: true",
          "megatron_fsdp_unit_modules: [LlamaDecoderLayer, Head]"})
      for (const int microbatches : {1, 3}) {
        SCOPED_TRACE(std::string(more) + ", zero " + std::to_string(strategy));
        Training run = mfsdp(2, zero(strategy, more));
        run.microbatches = microbatches;
        run.steps = 6;
        expect_close(train(run), want);
      }
}

TEST(MegatronFsdp, CountsAParameterUnusedOnOneRankAsZeroThere) {
  for (const std::vector<double>& used : {std::vector<double>{1, 0}, {0, 1}, {1, -1}, {-1, 1}}) {
    Training whole = toy("single", {});
    whole.microbatches = 2;
    use_extra_where(whole, used);
    const Outcome want = train(whole);
    for (int strategy = 0; strategy <= 3; ++strategy) {
      SCOPED_TRACE(strategy);
      Training run = toy_like(mfsdp(2, zero(strategy)));
      use_extra_where(run, used);
      expect_close(train(run), want);
    }
  }
}

// Values passed beside the outputs of units: the gradients of "embed" are announced by no output, and that of
// layer0's `extra` comes before its unit's output is reached.
TEST(MegatronFsdp, TakesGradientsThatComeBeforeTheirBuffers) {
  const auto make = [](int) {
    Units units = toy_units({});
    const auto rows = std::make_shared<at::Tensor>(), row = std::make_shared<at::Tensor>();
    const auto embed = toy_at(units, 0).body(), layer = toy_at(units, 1).body();
    const auto replace = [&](size_t at, const char* name, const ToyUnit::Body& body) {
      units[at] = std::make_unique<ToyUnit>(name, toy_at(units, at).own, body);
    };
    replace(0, "embed", [=](ToyUnit& unit, Tensors inputs, const Batch& batch) -> Tensors {
      *rows = embed(unit, std::move(inputs), batch)[0];
      return {rows->detach()};
    });
    replace(1, "layer0", [=](ToyUnit& unit, Tensors, Batch batch) {
      batch.extra = at::zeros({1});
      Tensors out = layer(unit, {*rows}, batch);
      *row = unit.own[3].tensor * 2;
      return out;
    });
    replace(2, "layer1", [=](ToyUnit& unit, Tensors inputs, const Batch& batch) -> Tensors {
      return {layer(unit, std::move(inputs), batch)[0] + *row};
    });
    return units;
  };
  Training whole = toy("single", {});
  whole.make_units = make;
  const Outcome want = train(whole);
  for (const int ranks : {1, 2, 3})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, zero " + std::to_string(strategy));
      Training run = toy_like(mfsdp(ranks, zero(strategy)));
      run.make_units = make, run.microbatches = 2;
      expect_close(train(run), want);
    }
}

// More layers than may be on their way to be reduced: ranks must not wait for each other.
TEST(MegatronFsdp, StaysInStepOverMicrobatchesThatEndEarly) {
  const std::vector<double> used = {1, -1, -1, 1};
  Toy deep;
  deep.layers = 9;
  Training whole = toy("single", {}, "", deep);
  whole.microbatches = 4;
  use_extra_where(whole, used);
  const Outcome want = train(whole);
  for (int strategy = 0; strategy <= 3; ++strategy) {
    Training run = toy_like(mfsdp(2, zero(strategy)), deep);
    run.microbatches = 2;
    use_extra_where(run, used);
    expect_close(train(run), want);
  }
}

TEST(MegatronFsdp, LeavesAParameterThatNoRankUsedWithoutAGradient) {
  Training whole = toy("single", {});
  use_extra_where(whole, {0});
  const auto want = gradients(whole);
  EXPECT_EQ(want.count("layer1.extra"), 0u);
  for (const int ranks : {1, 2})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      Training run = toy_like(mfsdp(ranks, zero(strategy, "calculate_per_token_loss: true")));
      use_extra_where(run, {0, 0});
      expect_same(gradients(run), want);
    }
}

TEST(MegatronFsdp, TrainsAForeignModelInPlaceFromTheValuesOfRankZero) {
  Toy foreign;
  foreign.meta = false;
  foreign.foreign = true;
  const Outcome want = train(toy("single", {}, "", foreign));
  for (const int ranks : {1, 2, 3})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      Training run = toy_like(mfsdp(ranks, zero(strategy)));
      run.make_units = [foreign](int rank) {
        Toy mine = foreign;
        mine.shift = rank;
        return toy_units(mine);
      };
      expect_close(train(run), want);
    }
}

TEST(MegatronFsdp, TrainsParametersOfTwoDtypesAndWithoutDims) {
  const auto make = [](int) {
    Toy real;
    real.meta = false;
    Units units = toy_units(real);
    for (size_t i = 1; i < 4; ++i) {
      at::Tensor& scale = toy_at(units, i).own[2].tensor;
      scale = scale.detach().to(at::kDouble).squeeze().set_requires_grad(true);
    }
    return units;
  };
  Training whole = toy("single", {});
  whole.make_units = make;
  const Outcome want = train(whole);
  for (const int ranks : {1, 2, 3})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      Training run = toy_like(mfsdp(ranks, zero(strategy)));
      run.make_units = make;
      expect_close(train(run), want);
    }
}

}  // namespace
}  // namespace heddle::tests
