// docs/configuration.md holds the table of every section, as the schemas print it.
#include "lib/run/recipe/fields.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "heddle/plugin/offer.h"
#include "trainer/cli/plugins/plugin_tables.h"

namespace heddle {

static void PrintTo(const SectionFields& section, std::ostream* out) {
  *out << section.name;
}

namespace {

class Fields : public ::testing::TestWithParam<SectionFields> {};

TEST_P(Fields, AreInTheDocument) {
  OfferedSchema schema;
  schema.name = GetParam().name;
  schema.fields = GetParam().fields;
  const std::string table = cli::to_markdown({{"section", &schema}});
  std::ostringstream document;
  document << std::ifstream(HEDDLE_SOURCE_DIR "/docs/configuration.md").rdbuf();
  EXPECT_NE(document.str().find("`" + schema.name + "`"), std::string::npos);
  EXPECT_NE(document.str().find("\n\n" + table), std::string::npos)
      << "put this into docs/configuration.md, under " << schema.name << ":\n"
      << table;
}

INSTANTIATE_TEST_SUITE_P(Sections, Fields, ::testing::ValuesIn(section_fields()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

}  // namespace
}  // namespace heddle
