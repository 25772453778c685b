// Drawings of pipeline schedules as text, JSON and SVG.
#include "lib/drawing/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "heddle/config/node.h"
#include "heddle/schedule/simulate.h"
#include "tests/core/schedule/tables.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Not;

schedule::Drawing drawing_of(const tests::Planned& planned) {
  return {planned.name, planned.table, planned.rank_of_stage, planned.microbatches};
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(ScheduleDrawing, IsATableWithIdleSharesAndPeaks) {
  EXPECT_EQ(
      schedule::to_table(drawing_of(tests::fill_and_drain(2, 2))),
      "fill and drain: 2 ranks, 2 stages, 2 microbatches\n"
      "rank 0 0F0 0F1 .   .   0B0 0B1  idle 33.3 %, peak 2\n"
      "rank 1 .   1F0 1F1 1B0 1B1      idle 33.3 %, peak 2\n"
      "idle: the share of time without work, where a forward takes 1 and a backward 2 (I 1, W 1); peak: "
      "the most microbatches alive at once, each on all layers of the rank\n");
}

// `heddle schedule --compare` counts the peak the same way.
TEST(ScheduleDrawing, CountsAPeakOnAllLayersOfARank) {
  const schedule::Drawing drawing = {"two stages",
                                     {{{Action::forward, 0, 0},
                                       {Action::forward, 1, 0},
                                       {Action::backward, 1, 0},
                                       {Action::backward, 0, 0}}},
                                     {0, 0},
                                     1};
  EXPECT_THAT(schedule::to_table(drawing), HasSubstr(", peak 1\n"));
  EXPECT_THAT(schedule::to_svg(drawing), HasSubstr("at most 1 alive on a rank"));
}

TEST(ScheduleDrawing, IsJsonWithTimes) {
  const std::string line = schedule::to_json(drawing_of(tests::fill_and_drain(2, 1)));
  EXPECT_THAT(line, HasSubstr(R"("rows":[["0F0","0B0"],["1F0","1B0"]])"));
  const Node json = config::read_text(line, "json");
  EXPECT_EQ(config::to_json(*json.find("rank_of_stage")), "[0, 1]");
  const Node& simulation = *json.find("simulation");
  EXPECT_EQ(config::to_json(*simulation.find("length")), "6.0");
  EXPECT_EQ(config::to_json(*simulation.find("idle")), "[0.5, 0.5]");
  EXPECT_EQ(config::to_json(*simulation.find("peak")), "[1, 1]");
  EXPECT_EQ(config::to_json(*simulation.find("times")),
            "[[[0.0, 1.0], [4.0, 6.0]], [[1.0, 2.0], [2.0, 4.0]]]");
}

TEST(ScheduleDrawing, IsAPictureOfEveryComputation) {
  for (const tests::Planned& planned : tests::every_kind(3, 4)) {
    const std::string svg = schedule::to_svg(drawing_of(planned));
    size_t actions = 0;
    for (const auto& row : planned.table) actions += row.size();
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")) << planned.name;
    EXPECT_TRUE(svg.ends_with("</svg>\n")) << planned.name;
    EXPECT_EQ(count(svg, "<g><title>"), actions) << planned.name;
    EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>")) << planned.name;
    EXPECT_EQ(count(svg, ">rank "), 3u) << planned.name;
  }
}

TEST(ScheduleDrawing, TellsIdleAndPeakAndOnlyTheKindsThatThereAre) {
  const std::string svg = schedule::to_svg(drawing_of(tests::early_backward(2, 4, tests::Backward::whole)));
  EXPECT_THAT(svg,
              HasSubstr("2 ranks, 2 stages, 4 microbatches  \u00b7  idle 20.0 %  \u00b7  at most 2 alive"));
  EXPECT_THAT(svg, HasSubstr("idle 20.0 %, peak 1"));
  EXPECT_THAT(svg, HasSubstr(">backward<"));
  EXPECT_THAT(svg, Not(HasSubstr("gradient of the weights")));
}

TEST(ScheduleDrawing, DrawsTheTransfersOfALoweredTable) {
  const tests::Planned planned = tests::fill_and_drain(3, 4);
  schedule::Drawing drawing = drawing_of(planned);
  EXPECT_EQ(count(schedule::to_svg(drawing), "<title>0SEND_F1</title></line>"), 0u);
  drawing.table = schedule::lower(planned.table, planned.rank_of_stage);
  const std::string svg = schedule::to_svg(drawing);
  EXPECT_EQ(count(svg, "<title>0SEND_F1</title></line>"), 1u);
  EXPECT_EQ(count(svg, "</title></line>"), 16u);  // 2 stage boundaries, 4 microbatches, 2 directions
}

// The mean character width of a proportional font is at most 0.6 of the font size.
TEST(ScheduleDrawing, IsAsWideAsItsWords) {
  const std::regex width_of("width=\"([0-9.]+)\" height"),
      word("<text x=\"([0-9.]+)\"[^>]*font-size=\"([0-9.]+)\"([^>]*)>([^<]*)<");
  for (const int microbatches : {1, 2, 40})
    for (const bool lowered : {false, true}) {
      schedule::Drawing drawing = drawing_of(tests::early_backward(2, microbatches, tests::Backward::split));
      drawing.name = "tables/of/somebody/with/a/very/long/path/that/is/the/name/of/a/schedule.csv";
      if (lowered) drawing.table = schedule::lower(drawing.table, drawing.rank_of_stage);
      const std::string svg = schedule::to_svg(drawing);
      std::smatch whole;
      ASSERT_TRUE(std::regex_search(svg, whole, width_of));
      for (std::sregex_iterator one(svg.begin(), svg.end(), word), none; one != none; ++one) {
        const bool from_x = (*one)[3].str().find("text-anchor") == std::string::npos;
        const double reach =
            std::stod((*one)[1]) + 0.6 * std::stod((*one)[2]) * static_cast<double>((*one)[4].length());
        if (from_x) {
          EXPECT_LE(reach, std::stod(whole[1])) << (*one)[4];
        }
      }
    }
}

TEST(ScheduleDrawing, WritesNamesAsTextNotAsMarkup) {
  schedule::Drawing drawing = drawing_of(tests::fill_and_drain(1, 1));
  drawing.name = "a<b>&\"c\"";
  EXPECT_THAT(schedule::to_svg(drawing), HasSubstr(">a&lt;b&gt;&amp;\"c\"</text>"));
}

}  // namespace
}  // namespace heddle
