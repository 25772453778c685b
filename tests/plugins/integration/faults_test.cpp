// The kits refuse each fault of tests/bad_plugins/faults with the rule that it violates, and pass the plugins
// without faults. CI runs the faults that are marked for it.
#include "plugins/integration/kit_faults.h"
#include "tests/main/with_all.h"

namespace heddle::tests {

using kits::Report;
namespace {

HEDDLE_WITH_ALL("Models/RefusedFault*:Parallelizers/RefusedFault*");

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Report faulty(const std::string& plugin, const std::string& fault, double time_limit = 60) {
  return fault_report(plugin, fault, kit_options({2}, time_limit));
}

const std::string kLosses = "{sum of token losses}", kUnits = "on meta, one shape per name",
                  kSplits = "splits slots, sets seams", kBatches = "transform(), side_outputs()";

INSTANTIATE_TEST_SUITE_P(
    Models, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "model", Tried::as_said,
        {{"wrong_gradient", "finite differences", "the gradient of '", true},
         {"backward_throws", "finite differences",
          "the plugin 'faulty_model' threw in the backward of the model: no workspace for a gradient"},
         {"throws_in_forward", kLosses,
          "the plugin 'faulty_model' threw in forward() of the unit 'layers.0': table of layers"},
         {"throws_in_forward", "trains under single",
          "the model's plugin threw in forward() of the unit 'layers.0': table of layers", true},
         {"throws_in_facts", kUnits, "threw while it told the facts of its model: no facts"},
         {"throws_in_make_units", kUnits, "threw while it made the units: no units"},
         {"throws_in_read", kUnits, "threw while it read a model's configuration"},
         {"changes_tokens", "keeps nothing", "the forward changes the batch's tokens"},
         {"keeps_state", "keeps nothing", "the same batch again", true},
         {"is_random", "keeps nothing", "the same batch again"},
         {"child_not_registered", "each pattern matches a module", "'layers.*.up'"},
         {"core_not_registered", "cp_size: 2", "differs by", true},
         {"mixes_tokens", "documents in one row", "are not equal to two rows"},
         {"mixes_tokens", "cp_size: 2", "differs by"},
         {"slot_not_registered", kLosses, "threw in forward() of the unit 'layers.0'"},
         {"unused_slot", "is registered", "does not compute with it"},
         {"detaches", "finite differences", "the gradient of '"},
         {"uses_another_units_parameter", "is registered", "of the unit 'embed'", true},
         {"counts_ignored", kLosses, "an ignored label counts"},
         {"mean_loss", kLosses, "is not the sum of their losses", true},
         {"many_losses", kLosses, "instead of one number"},
         {"logits_of_one_row", kLosses, "without labels the last unit gives"},
         {"key_ignored", "each key changes", "the key 'scale' does not affect the model", true},
         {"key_is_not_written", "each key changes", "with scale: ", true},
         {"dtype_is_not_written", "config_json()", "facts().dtype"},
         {"no_json", "config_json()", "read() refuses what config_json() wrote"},
         {"vocabulary_too_large", kLosses, "is outside the vocabulary of 29"},
         {"dtype_ignored", kUnits, "is Float instead of Double"},
         {"device_ignored", kUnits, "is not on meta"},
         {"units_of_one_name", kUnits, "two units have the name 'layers.0'"},
         {"plan_of_one_unit", kUnits, "another tensor_plan()"},
         {"pattern_matches_nothing", "each pattern matches", "'layers.*.gate_proj'"},
         {"no_signature", kUnits, "signature() is empty"},
         {"signature_is_constant", "signature(): changes with each key",
          "the key 'vocab_size' changes parameters", true},
         {"signature_lacks_a_size", "signature(): changes with each key",
          "the key 'hidden_size' changes parameters but not the signature: with hidden_size: ", true},
         {"config_names_another_type", "config_json()",
          "config_json() writes the model_type 'other', and the plugin offers faulty", true},
         {"no_flops", "flops_per_token()", "flops_per_token(1) is 0"},
         {"stored_overlap", "stored()", "at one place of this tensor of the files", true},
         {"stored_twice", "stored()", "at one place of this tensor of the files"},
         {"stored_leaves_a_gap", "stored()", "of its 372 elements"},
         {"stored_has_another_shape", "stored()", "lies outside the parameter along dim 0"},
         {"passes_over_a_parameter", "stored()", "passes_over('layers.0.gain') is true", true},
         {"other_name_is_another_parameter", "stored()", "has 'last.head.weight', where another"},
         {"flops_shrink", "flops_per_token()", "a longer sequence takes fewer operations"},
         {"flops_of_the_forward", "flops_per_token()",
          "but the matrix products of forward and backward take ", true},
         {"flops_of_a_wider_model", "flops_per_token()",
          "but the matrix products of forward and backward take "},
         {"untyped_keys", "the registry accepts", "has no key or no type"},
         {"keys_without_help", "the registry accepts",
          "the field 'vocab_size' of the model 'faulty' has no help"},
         {"help_hides_a_key", "each key changes", "with scale: ", true},
         {"two_faults", "each key changes", "the key 'scale' does not affect the model", true},
         {"two_faults", "each key changes", "the key 'window' does not affect the model", true},
         {"facts_name_another_type", kUnits, "facts().model_type is 'other'"},
         {"one_unit", kUnits, "the model has one unit"},
         {"units_change", "values from the default generator", "differs between two models"},
         {"shares_between_models", "values from the default generator", "is the same tensor in two models",
          true},
         {"values_not_drawn_from_the_generator", "values from the default generator",
          "differs between two models"},
         {"random_buffer", "config_json()", "after config_json() and read(), "},
         {"unknown_keys_pass", "an unknown key", "a YAML with the key", true},
         {"unknown_keys_refused", "an unknown key", "a config.json with an unknown key is refused"},
         {"default_is_another", "each key changes", "the table gives 'scale' the default 0.25", true},
         {"key_without_effect", "each key changes", "the key 'window' does not affect the model", true},
         {"key_that_is_not_read", "each key changes", "the key 'cap' does not affect the model"},
         {"key_is_rounded", "each key changes", "with scale: 0.6172835, after", true},
         {"positions_too_many", "the longest sequence", "table of positions"},
         {"changes_labels", kLosses, "an ignored label counts"},
         {"changes_positions", "keeps nothing", "the forward changes the batch's positions", true},
         {"changes_documents", "keeps nothing", "the documents end at 0"},
         {"changes_hidden", "is registered", "used in an in-place operation"},
         {"gradient_keeps_state", "keeps nothing", "the gradient of 'embed.table.weight' differs", true},
         {"gradient_of_first_row", "finite differences", "the gradient of '"},
         {"gradients_off", "keeps nothing", "does not require grad"},
         {"is_random_in_training", "keeps nothing", "the same batch again"},
         {"keeps_first_batch", "a split backward", "differs by"},
         {"mean_over_rows", kLosses, "is not the sum of their losses"},
         {"needs_even_rows", kLosses, "an odd row"},
         {"computes_in_bf16", "finite differences", "the gradient of '"},
         {"loss_in_the_models_dtype", kLosses, "returns its loss in BFloat16", true},
         {"logits_turned", kLosses, "token losses of the logits"},
         {"shifts_labels", kLosses, "token losses of the logits"},
         {"sees_the_future", "padding tokens are not counted", "with other padding tokens", true},
         {"metric_counts_padding", "padding tokens are not counted", "counts padding tokens"},
         {"auxiliary_counts_padding", "padding tokens are not counted", "counts padding tokens", true},
         {"auxiliary_gradient_doubled", "finite differences", "the gradient of '", true},
         {"auxiliary_mean_of_part", "cp_size: 2", "differs in the gradients"},
         {"auxiliary_not_declared", "keeps nothing", "nothing collects it"},
         {"slot_of_two_names", "finite differences", "the gradient of 'layers.0.second_gain'"},
         {"plan_is_wrong", "tp_size: 2", "its tensor_plan() is refused"},
         {"plan_loses_a_sum", "tp_size: 2", "its tensor_plan() is refused"},
         {"style_is_unknown", "tp_size: 2", "its tensor_plan() is refused: Unknown parallel style: colwize",
          true},
         {"counts_evaluations", "activation_checkpointing: full", "differs by"},
         {"keeps_first_batch", "under fsdp2 on 2 ranks", "differs by"},
         {"mean_over_rows", "pp_size: 2", "differs by"},
         {"changes_a_kept_result", "activation_checkpointing: selective", "differs in the gradients", true},
         {"expects_all_tokens", "tp_size: 2 and sequence_parallel", "differs by", true},
         {"experts_by_held", "ep_size: 2", "differs by", true}})),
    name_of_fault);

INSTANTIATE_TEST_SUITE_P(
    Parallelizers, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "parallelizer", Tried::as_said,
        {{"no_sum_in_forward", kSplits, "hold different ones", true},
         {"no_sum_in_backward", kSplits, "hold different ones"},
         {"averages", kSplits, "differs by"},
         {"gradient_scaled", kSplits, "differs in the gradients"},
         {"drops_a_work", kSplits, "a Work of all_reduce on tp was dropped without wait()", true},
         {"reads_before_wait", kSplits, "nan", true},
         {"order_differs", kSplits,
          "the plugin 'faulty_parallelizer' 0.1.0 threw while it ran in its seam after '"},
         {"seam_throws", kSplits,
          "the plugin 'faulty_parallelizer' 0.1.0 threw while it ran in its seam after "
          "'model.layers.0.mlp.down_proj': table of seams",
          true},
         {"throws_in_apply", kSplits, "threw while it split the model: no plan"},
         {"throws_in_check", kSplits, "threw while it checked the model: no rules"},
         {"counts_forwards", kSplits, "differs by"},
         {"counts_evaluations", "an evaluation between two steps", "differs"},
         {"loses_values", "parameters that have values", "differs", true},
         {"unfreezes", "requires no gradient stays so", "'", true},
         {"not_placed", kSplits, "and no Placed says so", true},
         {"placed_and_not_split", kSplits, "as a part of 46 indices of dim 0"},
         {"places_an_unknown_parameter", kSplits, "which is no parameter of the units"},
         {"places_on_a_wrong_axis", kSplits,
          "the parallelizer 'faulty' places the parameter 'model.layers.0.mlp.gate_proj.weight': the "
          "axis 'cpp' is in no view"},
         {"places_twice", kSplits, "the axis 'tp' is named twice"},
         {"whole_is_wrong", kSplits, "as a part of 25 indices of dim 0"},
         {"offset_is_wrong", kSplits,
          "the parallelizer 'faulty' breaks a rule of apply(): its ranks along tp hold the indices of "
          "dim 0",
          true},
         {"dim_is_wrong", kSplits, "of dim 1, and before it acted"},
         {"ranks_have_one_part", kSplits, "twice: a part begins at 0"},
         {"remainder_lost", kSplits, "hold 22 of 23 indices"},
         {"transform_throws", kBatches, "threw while it changed a batch: no table"},
         {"transform_in_place", kBatches, "'faulty_parallelizer' changed the batch's tokens in place"},
         {"transform_loses_rows", kBatches, "rows of the batch's tokens"},
         {"transform_dtype", kBatches, "'faulty_parallelizer' gave the batch's tokens the dtype Int", true},
         {"transform_length", kBatches, "'faulty_parallelizer' gave the batch's labels the sizes"},
         {"transform_token", kBatches,
          "'faulty_parallelizer' gave the batch the token 1000000, and the model's embedding has ", true},
         {"metric_counts_ranks", kBatches, "the side output 'faulty/count'"},
         {"metric_is_of_one_rank", kBatches, "ranks along tp added different values"},
         {"transform_by_rank", kBatches, "hold different ones"},
         {"transform_counts", "an evaluation between two steps", "differs"},
         {"transform_throws_in_evaluation", kBatches, "no second table"},
         {"sums_twice", kSplits, "differs by", true},
         {"sums_in_bf16", kSplits, "differs by"},
         {"sizes_differ", kSplits, "ranks call different collectives"},
         {"skips_a_collective", kSplits, "ranks call different collectives"},
         {"partial_that_is_whole", kSplits, "'model.norm.weight' differs in the gradients"},
         {"keeps_first_value", kSplits, "differs by"},
         {"seam_returns_one_row", kSplits, "differs by", true},
         {"seam_turns_rows", kSplits, "differs by"},
         {"after_update_throws", kSplits, "threw while it changed its buffers after an update"},
         {"axis_is_unknown", "the registry accepts", "names the axis 'tensor'"},
         {"throws_in_needs", "the registry accepts", "threw while it made its offer: no axes"},
         {"axis_without_key", "needs() names an axis with a key",
          "no run can set the size of one of its axes"},
         {"counts_evaluations", "may be recomputed in the backward", "differs"},
         {"keeps_one_microbatch", "several microbatches may be in flight", "differs in the gradients"},
         {"keeps_one_microbatch", "support a split backward", "differs in the gradients"},
         {"forgets_documents", "rows of several documents", "differs"},
         {"needs_even_rows", "sequence lengths that the ranks do not divide", "an uneven row"},
         {"divides_by_data_ranks", "with other data-parallel ranks", "differs"},
         {"needs_the_embedding", "the units of one stage of a pipeline", "no embedding"},
         {"draws_at_random", "two runs are bitwise equal", "differs between two runs"},
         {"batch_by_rank", kBatches, "differ"},
         {"batch_by_stage", "equal on every rank of a pipeline", "differ"},
         {"batch_counts", "an evaluation between two steps", "differs"},
         {"batch_skips_a_document", "rows of several documents", "differs", true},
         {"changes_a_kept_result", "selective checkpointing may keep results of its seams",
          "differs in the gradients", true},
         {"tables_placed_twice", "a tied parameter is split once", "the axis 'tp' is named twice", true},
         {"tables_cut_once_of_two", "a tied parameter is split once", "'model.embed_tokens.weight'"}})),
    name_of_fault);

INSTANTIATE_TEST_SUITE_P(Dispatchers, RefusedFault,
                         ::testing::ValuesIn(faults_of(
                             "dispatcher", Tried::as_said,
                             {{"loses_a_row", kSplits, "the link of 'faulty_dispatcher' returned [7, 14]"},
                              {"returns_one_row", kSplits, "returned [1, 14]"},
                              {"returns_another_width", kSplits, "returned [8, 13]", true},
                              {"other_dtype", kSplits, "of Double for tokens"},
                              {"no_sum", kSplits, "differs by", true},
                              {"turns_rows", kSplits, "differs by", true},
                              {"adds_its_input", kSplits, "differs by"},
                              {"averages", kSplits, "differs by"},
                              {"drops_choices", kSplits, "differs by"},
                              {"takes_the_next_expert", kSplits, "differs by"},
                              {"weights_ignored", kSplits, "differs by"},
                              {"weights_have_no_gradient", kSplits, "differs in the gradients"},
                              {"no_sum_in_backward", kSplits, "differs in the gradients"},
                              {"not_placed", kSplits, "and no Placed says so"}})),
                         name_of_fault);

constexpr const char *kState = "state(): a run continues from copied values",
                     *kApproximate = "Needs::approximate";

INSTANTIATE_TEST_SUITE_P(
    Strategies, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "strategy", Tried::always,
        {{"forgets_state", kState, "is not bitwise equal on rank 0 after six steps"},
         {"gives_copies", kState, "return everything that a stage keeps between steps from state()"},
         {"begins_anew_when_resumed", kState, "is not bitwise equal on rank "},
         {"sums_too_much", "the sum over the data-parallel ranks", "but needs().approximate allows 5.0e-02"},
         {"exact_keeps_momentum", "with {momentum: 0} on 2 ranks: finish_gradients(): the sum over",
          "differs from the strategy `single`"},
         {"never_exact", kApproximate, "it is also approximate with {momentum: 0}"},
         {"no_reason", kApproximate, "the tolerance is not between 0 and 1, or the reason is empty"},
         {"no_axes", "needs() names the axes of its mesh", "its needs name no axis of the mesh"},
         {"writes_in_forward", "several microbatches may be in flight", "an inplace operation"},
         {"needs_the_embedding", "with pipeline parallelism", "no embedding"},
         {"forgets_replicas", "with replicas: the axis dp_replicate", "hold different ones"},
         {"releases_after_forward",
          "with {momentum: 0} on 2 ranks: Needs::may_use: selective_activation_checkpointing",
          "differs in the gradients"},
         {"draws_at_random", "two runs are bitwise equal", "differs between two runs"}})),
    name_of_fault);

INSTANTIATE_TEST_SUITE_P(DevicesAndPlans, RefusedFault, ::testing::ValuesIn([] {
                           auto rows = faults_of(
                               "device", Tried::always,
                               {{"absent_changes", "absent()", "then 'it is in use'"},
                                {"wraps_nothing", "start(), wrap()", "wrap() returns a null pointer"},
                                {"starts_on_another_device", "start(), wrap()",
                                 "start() returns cpu, but the rendezvous of wrap() is on meta"},
                                {"peak_is_low", "start(), wrap()", "a peak below the current bytes"}});
                           for (KitFault& row :
                                faults_of("plan", Tried::always,
                                          {{"no_styles", "gives styles", "it names no module"}}))
                             rows.push_back(std::move(row));
                           return rows;
                         }()),
                         name_of_fault);

TEST(FaultyPlugins, PassWithoutAFault) {
  for (const char* plugin : {"model", "parallelizer", "dispatcher", "strategy", "plan"}) {
    const Report report = faulty(plugin, "none");
    EXPECT_TRUE(report.passed()) << report.text();
    EXPECT_THAT(report.untrained(), IsEmpty());
  }
}

// Equal results of a model that a plugin leaves unchanged show nothing.
TEST(FaultyPlugins, AreNotRunIfNoneOfTheirFunctionsRuns) {
  for (const auto& [plugin, fault] :
       {std::pair{"dispatcher", "links_nothing"}, {"parallelizer", "does_nothing"}}) {
    const Report report = faulty(plugin, fault);
    EXPECT_TRUE(report.passed()) << report.text();
    EXPECT_EQ(report.untrained().size(), 1u) << report.text();
    EXPECT_THAT(report.text(), HasSubstr("not run: no link or seam of it ran and it placed no parameter"));
  }
}

TEST(FaultyPlugins, AreNotRunIfSelectiveCheckpointingRecomputesNothing) {
  EXPECT_THAT(faulty("model", "keeps_its_values").text(),
              HasSubstr("activation_checkpointing: selective: not run: no unit ran again in the backward"));
  EXPECT_THAT(faulty("parallelizer", "acts_after_a_layer").text(),
              HasSubstr("may keep results of its seams: not run: no link or seam of it ran again"));
}

TEST(FaultyPlugins, AreNotRunIfNoKeyCanBeTried) {
  const Report report = faulty("model", "types_of_another_kind");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_THAT(report.text(),
              HasSubstr("not run: the kit knows no other values for the types of vocab_size, "));
}

TEST(FaultyPlugins, AreNotTrainedIfTheirSmallestModelIsLarge) {
  const Report report = faulty("model", "large_default", 20);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_THAT(report.untrained(), ElementsAre("model 'faulty'"));
  EXPECT_THAT(report.text(),
              HasSubstr("its smallest model has 4800 million parameters, too many to train here"));
}

// A gradient that is zero in exact arithmetic, and a number that config.json writes in another form.
TEST(FaultyPlugins, CanRoundGradientsAndFormatNumbers) {
  for (const char* fault : {"zero_gradient", "writes_another_text"}) {
    const Report report = faulty("model", fault);
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

TEST(FaultyPlugins, CanDeclareAnAuxiliaryLoss) {
  const Report report = faulty("model", "auxiliary_loss");
  EXPECT_TRUE(report.passed()) << report.text();
}

TEST(FaultyPlugins, PassInTheVariantsWithoutAFault) {
  for (const auto& [plugin, variant] :
       {std::pair{"model", "experts"}, {"model", "no_gain"}, {"parallelizer", "tables_split"}}) {
    const Report report = faulty(plugin, variant);
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

// A resumed run warns of each key of config_json() that differs.
TEST(FaultyPlugins, CanOmitKeysWithoutParametersFromTheSignature) {
  const Report report = faulty("model", "signature_lacks_a_factor");
  EXPECT_TRUE(report.passed()) << report.text();
}

TEST(FaultyPlugins, DoNotPassIfNothingTrainsThem) {
  kits::KitOptions options = kit_options({2});
  options.fields = "{hidden_size: 13}";
  const Report report = bad_plugin_report("faulty_model", options);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_THAT(report.untrained(), ElementsAre("model 'faulty'"));
}

TEST(FaultyPlugins, AreEndedByTheTimeLimitIfTheyLoop) {
  const Report report = faulty("parallelizer", "seam_loops", 3);
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(report.checks.back().detail, HasSubstr("it did not end within 3 s: rank 1 is in "
                                                     "'faulty_parallelizer': ran in its seam after '"))
      << report.text();
}

}  // namespace
}  // namespace heddle::tests
