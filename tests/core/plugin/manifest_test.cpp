// The text of the manifest, and the contents of a plugin's file.
#include "core/plugin/manifest.h"

#include "gallery.h"

namespace {

using gallery::error_of;
using heddle::plugin::parse_manifest;
using heddle::plugin::PluginManifest;
using ::testing::HasSubstr;

std::string refused(const std::string& text) {
  return error_of([&] { parse_manifest(text, "here.so"); }).message();
}

TEST(PluginManifest, AreReadFromTheFileWithoutOpeningIt) {
  const PluginManifest manifest = heddle::plugin::read_manifest(gallery::file("plain"));
  EXPECT_EQ(manifest.name, "plain");
  EXPECT_EQ(manifest.version, "1.2.3");
  EXPECT_EQ(manifest.abi, heddle::plugin::abi_tag());
  ASSERT_EQ(manifest.offers.size(), 1u);
  EXPECT_EQ(manifest.offers[0].text(), "strategy plain (Simple, plain-old)");
}

TEST(PluginManifest, DefaultsToAStrategyOfThePluginsName) {
  const PluginManifest manifest =
      parse_manifest("heddle plugin manifest 1\nabi x\nplugin acme 2\nend\n", "here.so");
  ASSERT_EQ(manifest.offers.size(), 1u);
  EXPECT_EQ(manifest.offers[0].text(), "strategy acme");
}

TEST(PluginManifest, ContainsSdkTorchLibraryPlatformAndModeInItsTag) {
  EXPECT_THAT(std::string(heddle::plugin::abi_tag()),
              ::testing::ContainsRegex("^sdk=[0-9]+ torch=2\\.11\\.0 library=[a-z+]+-[a-z0-9]+ "
                                       "platform=linux-[a-z0-9_]+ mode=[a-z+]+$"));
}

TEST(PluginManifest, ReportsWhyItCannotBeRead) {
  EXPECT_THAT(refused("hello"), HasSubstr("it does not begin as a manifest"));
  EXPECT_THAT(refused("heddle plugin manifest 1\nabi x\nplugin acme 2\n"),
              HasSubstr("it stops before its end"));
  EXPECT_THAT(refused("heddle plugin manifest 1\nplugin acme 2\nend\n"),
              HasSubstr("the name or the ABI tag is missing"));
  EXPECT_THAT(refused("heddle plugin manifest 1\nabi x\nplugin acme\nend\n"),
              HasSubstr("is not 'plugin name version'"));
  EXPECT_THAT(refused("heddle plugin manifest 1\nabi x\nplugin acme 2\noffer strategy\nend\n"),
              HasSubstr("'offer strategy' is not 'offer kind name alias...'"));
  EXPECT_THAT(refused("heddle plugin manifest 1\nabi x\nplugin acme 2\noffer strategy a/b\nend\n"),
              HasSubstr("'a/b' is not a name"));
  EXPECT_THAT(refused("heddle plugin manifest 1\nabi x\nplugin acme 2\nwish more\nend\n"),
              HasSubstr("unknown line 'wish more'"));
}

TEST(PluginManifest, DoesNotCrashTheReaderWithAnyByteChanged) {
  const gallery::Place place;
  const auto copy = place.add(gallery::file("no_manifest"), "libheddle_x.so");
  std::string bytes(std::filesystem::file_size(copy), '\0');
  std::ifstream(copy, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  size_t refusals = 0;
  for (size_t at = 0; at < 64; ++at) {
    for (const unsigned char value : {0x00, 0x7f, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      std::ofstream(copy, std::ios::binary)
          .write(changed.data(), static_cast<std::streamsize>(changed.size()));
      try {
        (void)heddle::plugin::read_manifest(copy);
      } catch (const heddle::Error&) {
        ++refusals;
      }
    }
  }
  EXPECT_EQ(refusals, 64u * 3u);  // it has no manifest, whatever its header contains
}

}  // namespace
