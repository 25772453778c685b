// fsdp2 trains to the numbers of `single`, whatever the topology.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

Training parity_single() {
  Training run;
  run.model = odd_llama();
  return run;
}

Training sharded(int ranks, const std::string& more = "", int replicas = 1) {
  Training run = parity_single();
  run.strategy = "fsdp2";
  run.section = kFloat + more;
  run.axes = shards(ranks, replicas);
  return run;
}

TEST(Fsdp2, EqualsSingleOnOneToFourRanks) {
  const Outcome want = train(parity_single());
  for (int ranks = 1; ranks <= 4; ++ranks) {
    SCOPED_TRACE(ranks);
    expect_close(train(sharded(ranks)), want);
  }
}

TEST(Fsdp2, EqualsSingleBitForBitOnOneRank) {
  expect_bit_equal(train(sharded(1)), train(parity_single()));
}

TEST(Fsdp2, EqualsSingleWithTiedEmbeddings) {
  Training run = parity_single();
  run.model.tie_word_embeddings = true;
  const Outcome want = train(run);
  for (const int ranks : {1, 2, 4})
    for (const char* reshard : {"null", "true", "false"}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, reshard_after_forward " + reshard);
      Training tied = sharded(ranks, std::string("reshard_after_forward: ") + reshard);
      tied.model.tie_word_embeddings = true;
      expect_close(train(tied), want);
    }
}

TEST(Fsdp2, EqualsSingleUnderHybridSharding) {
  expect_close(train(sharded(2, "", 2)), train(parity_single()));
}

TEST(Fsdp2, EqualsSingleWhateverIsReshardedAndWhenGradientsAreReduced) {
  Training run = parity_single();
  run.steps = 6;
  const Outcome want = train(run);
  for (const char* reshard : {"null", "true", "false"})
    for (const char* defer : {"true", "false"})
      for (const int microbatches : {1, 3})
        for (const int replicas : {1, 2}) {
          const std::string section =
              std::string("reshard_after_forward: ") + reshard + "\ndefer_fsdp_grad_sync: " + defer;
          SCOPED_TRACE(section + "\nmicrobatches " + std::to_string(microbatches) + ", replicas " +
                       std::to_string(replicas));
          Training split = sharded(2, section, replicas);
          split.microbatches = microbatches;
          split.steps = 6;
          expect_close(train(split), want);
        }
}

TEST(Fsdp2, AccumulatesThreeMicrobatchesAsOneBatch) {
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    Training run = sharded(ranks);
    run.microbatches = 3;
    expect_close(train(run), train(parity_single()));
  }
}

TEST(Fsdp2, EqualsSingleWithFrozenParameters) {
  const std::vector<std::string> frozen = {"model.embed_tokens.weight",
                                           "model.layers.0.self_attn.q_proj.weight",
                                           "model.layers.1.mlp.gate_proj.weight", "model.norm.weight"};
  Training run = parity_single();
  run.frozen = frozen;
  const Outcome want = train(run);
  for (const int ranks : {1, 2, 3})
    for (const char* reshard : {"null", "true", "false"}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, reshard_after_forward " + reshard);
      Training partly = sharded(ranks, std::string("reshard_after_forward: ") + reshard);
      partly.frozen = frozen;
      expect_close(train(partly), want);
    }
}

TEST(Fsdp2, EqualsSingleWithAWholeUnitFrozen) {
  Training run = parity_single();
  for (const char* part :
       {"self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.k_proj.weight",
        "self_attn.k_proj.bias", "self_attn.v_proj.weight", "self_attn.v_proj.bias",
        "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
        "input_layernorm.weight", "post_attention_layernorm.weight"})
    run.frozen.push_back(std::string("model.layers.1.") + part);
  const Outcome want = train(run);
  for (const char* reshard : {"null", "true", "false"}) {
    SCOPED_TRACE(reshard);
    Training partly = sharded(2, std::string("reshard_after_forward: ") + reshard);
    partly.frozen = run.frozen;
    expect_close(train(partly), want);
  }
}

TEST(Fsdp2, GivesTheSameBitsTwice) {
  Training run = sharded(3);
  run.steps = 6;
  expect_bit_equal(train(run), train(run));
  Training hybrid = sharded(2, "defer_fsdp_grad_sync: false", 2);
  hybrid.microbatches = 3;
  hybrid.steps = 6;
  expect_bit_equal(train(hybrid), train(hybrid));
}

}  // namespace
}  // namespace heddle::tests
