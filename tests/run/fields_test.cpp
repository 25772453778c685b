// Tables of fields in docs/reference/configuration.md.
#include "lib/run/recipe/fields.h"

#include <gmock/gmock.h>

#include "heddle/plugin/offer.h"
#include "tests/main/reference_table.h"
#include "trainer/cli/plugins/plugin_tables.h"

namespace heddle {

static void PrintTo(const SectionFields& section, std::ostream* out) {
  *out << section.name;
}

namespace {

class Fields : public ::testing::TestWithParam<SectionFields> {};

TEST_P(Fields, EqualTheTableOfTheReference) {
  OfferedSchema schema;
  schema.name = GetParam().name;
  schema.fields = GetParam().fields;
  tests::expect_reference_table("configuration.md", schema.name, cli::to_markdown({{"section", &schema}}));
}

INSTANTIATE_TEST_SUITE_P(Sections, Fields, ::testing::ValuesIn(section_fields()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

}  // namespace
}  // namespace heddle
