// Keys of a family, declared once: table, reader and the text of config.json.
#include "heddle/model/config_keys.h"

#include <gmock/gmock.h>

#include <optional>

#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::thrown_by;

struct Keys {
  int64_t hidden_size = 64, heads = 4;
  std::optional<int64_t> inner;
  double eps = 1e-5;
  std::string dtype;
};

model::ModelKeys<Keys> keys() {
  return model::ModelKeys<Keys>()
      .field("hidden_size", &Keys::hidden_size, "Width.", Range<int64_t>{1, model::kLargestSize})
      .field("n_head", &Keys::heads, "Heads.", Range<int64_t>{1, 128})
      .field("n_inner", &Keys::inner, "Width of the MLP; null: 4 hidden_size.", at_least<int64_t>(1))
      .field("eps", &Keys::eps, "Epsilon of norms.")
      .field("dtype", &Keys::dtype, "Dtype of the stored weights.")
      .unused("summary_type", "Type for other tasks.")
      .then([](Keys& all) { all.inner = all.inner.value_or(4 * all.hidden_size); })
      .rule([](const Keys& all) {
        return all.hidden_size % all.heads == 0 ? "" : std::string("n_head does not divide hidden_size");
      });
}

TEST(ConfigKeys, RefusesARealNumberThatIsNotFinite) {
  const Node keys = config::read_text("{theta: .inf, eps: .nan, scale: 2}", "config.json");
  EXPECT_EQ(thrown_by([&] { model::real_or(keys, "theta", 1); }),
            "error[config] config.json:1 theta: expected a finite number, got .inf");
  EXPECT_THAT(thrown_by([&] { model::real_or(keys, "eps", 1); }), HasSubstr("expected a finite number"));
  EXPECT_EQ(model::real_or(keys, "scale", 1), 2);
  EXPECT_EQ(model::real_or(keys, "absent", 3), 3);
}

Keys read(const std::string& yaml, UnknownKeys unknown = UnknownKeys::refused) {
  return keys().read(config::read_text(yaml, "config.json"), unknown);
}

TEST(ModelKeys, DefineTableReaderAndWriter) {
  const std::vector<FieldInfo> table = keys().table();
  ASSERT_EQ(table.size(), 6u);
  EXPECT_EQ(table[1].key + " " + table[1].type + " " + table[1].default_value + " " + table[1].range,
            "n_head integer 4 1 to 128");
  const Keys some =
      read("{model_type: mine, hidden_size: 32, n_head: null, eps: 2, summary_type: x, use_cache: true}");
  EXPECT_EQ(some.hidden_size, 32);
  EXPECT_EQ(some.heads, 4);  // null counts as absent
  EXPECT_EQ(some.inner, 128);
  EXPECT_EQ(some.eps, 2.0);
  const std::string text = keys().config_json(some, "mine", "MineForCausalLM", "bfloat16");
  EXPECT_EQ(text,
            "{\n  \"architectures\": [\n    \"MineForCausalLM\"\n  ],\n  \"model_type\": \"mine\",\n"
            "  \"hidden_size\": 32,\n  \"n_head\": 4,\n  \"n_inner\": 128,\n  \"eps\": 2.0,\n"
            "  \"dtype\": \"bfloat16\",\n  \"torch_dtype\": \"bfloat16\"\n}\n");
  EXPECT_EQ(read(text, UnknownKeys::passed_over).inner, 128);
}

TEST(ModelKeys, RefuseAtTheKey) {
  EXPECT_EQ(thrown_by([] { read("{n_head: 0}"); }),
            "error[config] config.json:1 n_head: expected 1 to 128, got 0");
  EXPECT_THAT(thrown_by([] { read("{n_heads: 2}"); }),
              HasSubstr("unknown key 'n_heads'\n  hint: did you mean"));
  EXPECT_THAT(thrown_by([] { read("{rope: 2}"); }), HasSubstr("unknown key 'rope'"));
  EXPECT_EQ(thrown_by([] { read("{rope: 2}", UnknownKeys::passed_over); }), "");
  EXPECT_THAT(thrown_by([] { read("{n_head: 5}"); }), HasSubstr("n_head does not divide hidden_size"));
}

}  // namespace
}  // namespace heddle
