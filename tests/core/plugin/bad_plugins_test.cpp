// Each plugin of the gallery is refused with the expected message.
#include "core/plugin/manifest.h"
#include "gallery.h"
#include "heddle/base/version.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/plugin/registry.h"

namespace {

using gallery::error_of;
using gallery::file;
using gallery::Place;
using heddle::Error;
using heddle::ErrorCode;
using heddle::PluginRegistry;
using ::testing::HasSubstr;

// Loads one file into a new registry, and returns the error.
Error plugin_refusal(const std::string& plugin) {
  return error_of([&] { PluginRegistry({}).load(file(plugin).string()); });
}

struct PluginCase {
  std::string plugin;
  ErrorCode code;
  std::string message, hint;
};

class BadPlugin : public ::testing::TestWithParam<PluginCase> {};

TEST_P(BadPlugin, IsRefusedWithItsMessage) {
  const PluginCase& expected = GetParam();
  const Error error = plugin_refusal(expected.plugin);
  EXPECT_EQ(name_of(error.code()), name_of(expected.code));
  EXPECT_EQ(error.where(), file(expected.plugin).string());
  EXPECT_THAT(error.message(), HasSubstr(expected.message));
  EXPECT_THAT(error.hint(), HasSubstr(expected.hint));
}

constexpr auto kFailed = ErrorCode::plugin_failed;

INSTANTIATE_TEST_SUITE_P(
    Gallery, BadPlugin,
    ::testing::Values(
        PluginCase{"no_manifest", kFailed, "the library has no manifest, so it is not a heddle plugin",
                   "HEDDLE_PLUGIN"},
        PluginCase{"newer_manifest", kFailed,
                   "'heddle plugin manifest 7' is of another form than this engine reads", "sdk.h"},
        PluginCase{
            "odd_kind", kFailed,
            "unknown kind 'gadget' (there are: strategy, parallelizer, schedule, section, device, plan, "
            "model",
            "kind name alias"},
        PluginCase{"no_entry", kFailed, "has a manifest, but no entry function heddle_plugin_offer",
                   "HEDDLE_PLUGIN"},
        PluginCase{"two_manifests", kFailed,
                   "the file of the plugin 'two_manifests' 0.1.0 was replaced after it was read: it is "
                   "'two_manifests' "
                   "0.2.0 (sdk=0) now",
                   "leave a plugin's file in place while a run starts"},
        PluginCase{"unresolved", kFailed, "undefined symbol: _Z28a_function_that_nobody_wrotev",
                   "heddle_add_plugin()"},
        PluginCase{"lies", kFailed,
                   "invalid plugin 'lies' 0.1.0: it offers the strategy 'plain', but its "
                   "manifest does "
                   "not",
                   "write \"strategy plain\" in HEDDLE_PLUGIN"},
        PluginCase{"promises", kFailed, "its manifest declares the section 'extra', which it does not offer",
                   "take it out of the manifest"},
        PluginCase{"aliases", kFailed,
                   "the aliases of the strategy 'aliases' are 'alias-two', and in its manifest 'alias-one'",
                   "write them in HEDDLE_PLUGIN only"},
        PluginCase{"twice", kFailed, "it offers the strategy 'twice' twice", "offer it once"},
        PluginCase{"throws", kFailed,
                   "the plugin 'throws' 0.1.0 threw while it made its offer: the licence server is away",
                   "author"},
        PluginCase{"throws_number", kFailed,
                   "the plugin 'throws_number' 0.1.0 threw while it made its offer: something that is not a "
                   "std::exception",
                   "author"},
        PluginCase{"constructor", kFailed,
                   "the plugin 'constructor' 0.1.0 threw while it made its offer: no process group yet",
                   "author"},
        PluginCase{"empty_offer", kFailed, "it offers nothing", "plugin.strategy<...>"},
        PluginCase{"bad_default", kFailed,
                   "the schema of the strategy 'bad_default' does not allow its own defaults",
                   "initialisers"},
        PluginCase{
            "same_key", kFailed,
            "the plugin 'same_key' 0.1.0 threw while it made its offer: schema: the key 'prefetch' is bound "
            "twice",
            "author"},
        PluginCase{"odd_axis", kFailed,
                   "the strategy 'odd_axis' names the axis 'sideways', which the engine does not know",
                   "use pp, dp, dp_replicate"},
        PluginCase{"axes_of_strategy", kFailed,
                   "the strategy 'declares' sets new_axes, new_views or after, which are fields of a "
                   "parallelizer's needs",
                   "offer a parallelizer"},
        PluginCase{"pp_view", kFailed, "the parallelizer 'folds' declares the view 'acme' over 'pp'",
                   "a view refolds neighbours of dp, cp and tp, in this order"},
        PluginCase{"second_single", ErrorCode::plugin_conflict,
                   "the strategy 'single' is there already, from the engine itself", "rename"}),
    [](const auto& info) { return info.param.plugin; });

TEST(BadPlugin, IsNotOpenedWhenBuiltForAnotherLibTorch) {
  const Error error = plugin_refusal("other_torch");
  EXPECT_EQ(error.code(), ErrorCode::plugin_abi);
  EXPECT_EQ(exit_status(error.code()), 2);
  EXPECT_THAT(error.message(),
              HasSubstr("the plugin 'other_torch' 0.1.0 was built for another engine: torch is "
                        "2.10.0 there and 2.11.0 here (plugin: sdk=" +
                        std::to_string(HEDDLE_SDK_NUMBER) + " torch=2.10.0 "));
  EXPECT_THAT(error.message(), HasSubstr("engine: " + std::string(heddle::plugin::abi_tag())));
  EXPECT_EQ(error.hint(),
            "build it again against this engine's SDK, with the same standard library and LibTorch");
}

TEST(BadPlugin, IsNotOpenedWhenBuiltWithAnotherStandardLibrary) {
  const Error error = plugin_refusal("other_library");
  EXPECT_EQ(error.code(), ErrorCode::plugin_abi);
  EXPECT_THAT(error.message(), HasSubstr("library is libc++-1 there and "));
}

TEST(BadPlugin, IsNeverOpenedWhenTruncated) {
  const Place place;
  const auto whole = std::filesystem::file_size(file("plain"));
  for (const uintmax_t bytes :
       {uintmax_t{0}, uintmax_t{3}, uintmax_t{40}, uintmax_t{64}, whole / 2, whole - 1}) {
    const auto cut = place.add_cut(file("plain"), "libheddle_cut" + std::to_string(bytes) + ".so", bytes);
    const Error error = error_of([&] { PluginRegistry({}).load(cut.string()); });
    EXPECT_EQ(error.code(), kFailed);
    EXPECT_THAT(error.message(),
                HasSubstr(bytes < 4 ? "this is not a shared library (no ELF header)"
                                    : "the file is cut: it has " + std::to_string(bytes) + " bytes"));
  }
}

TEST(BadPlugin, IsRefusedWhenItIsNotAnElfFile) {
  const Place place;
  const auto text = place.add(std::string(HEDDLE_SOURCE_DIR) + "/CMakeLists.txt", "libheddle_text.so");
  const Error error = error_of([&] { PluginRegistry({}).load(text.string()); });
  EXPECT_EQ(error.code(), kFailed);
  EXPECT_EQ(error.message(), "this is not a shared library (no ELF header)");
}

TEST(BadPlugin, IsRefusedWhenItIsAProgram) {
  const Error error = error_of([&] { PluginRegistry({}).load("/proc/self/exe/../exe"); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_missing);
}

TEST(BadPlugin, IsNamedWhenItThrowsInItsConstructor) {
  PluginRegistry registry({});
  registry.load(file("late").string());
  const heddle::OfferedStrategy* late = registry.strategy("late");
  ASSERT_NE(late, nullptr);
  const auto section = [](int64_t prefetch) {
    return heddle::Node::map({{"prefetch", heddle::Node::integer(prefetch)}});
  };
  EXPECT_NE(late->make(section(2)), nullptr);
  const Error error = error_of([&] { late->make(section(3)); });
  EXPECT_EQ(error.code(), kFailed);
  EXPECT_EQ(error.message(),
            "the plugin 'late' 0.1.0 threw while it made the strategy 'late': prefetch table");
  // The message of the schema about the YAML is unchanged.
  EXPECT_EQ(error_of([&] { late->resolve(section(9)); }).code(), ErrorCode::config);
}

TEST(BadPlugin, IsNamedWhenItThrowsInUse) {
  PluginRegistry registry({});
  registry.load(file("late").string());
  const auto late = registry.strategy("late")->make(heddle::Node::map({}));
  heddle::AloneRendezvous alone;
  const std::vector<heddle::Axis> axes = {{"dp", 1}};
  const heddle::DeviceMesh mesh = heddle::mesh::build(axes, alone, "");
  const Error error = error_of([&] { late->parallelize({}, mesh, {}); });
  EXPECT_EQ(error.code(), kFailed);
  EXPECT_EQ(error.where(), file("late").string());
  EXPECT_EQ(error.message(), "the plugin 'late' 0.1.0 threw while it parallelized the model: no workspace");
}

using BadPluginDeathTest = ::testing::Test;

TEST(BadPluginDeathTest, EndsTheProcessWhenTwoPluginsRegisterOneOperatorNamespace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        for (const char* plugin : {"static_a", "static_b"}) (void)plugin_refusal(plugin);
      },
      "Only a single TORCH_LIBRARY can be used to register the namespace heddle_bad_static");
}

}  // namespace
