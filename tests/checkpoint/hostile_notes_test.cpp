// Metadata files nested so deeply that a recursive JSON parser would overflow the stack.
#include <gtest/gtest.h>

#include "folder.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "lib/checkpoint/huggingface/hf_plan.h"

namespace heddle {
namespace {

std::string million_deep() {
  return std::string(1000000, '[') + std::string(1000000, ']');
}

TEST(HostileNotes, RefuseADeepTableOfTensors) {
  const tests::Folder folder;
  folder.write("tensors.json", R"({"version": 1, "tensors": {}, "index": )" + million_deep() + "}");
  EXPECT_EQ(tests::error_of(folder, [&] { checkpoint::kept_origin(folder.path()); }),
            "error[input] FOLDER/tensors.json: is not JSON, or nests too deep\n  hint: copy the checkpoint "
            "again, or remove the file: an export then chooses files by size");
}

TEST(HostileNotes, RefuseADeepConfiguration) {
  checkpoint::HfOrigin origin;
  origin.files["config.json"] = R"({"a": )" + million_deep() + "}";
  try {
    checkpoint::plan_hf({}, origin, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "error[input] config.json: nests deeper than 64\n  hint: copy the file again");
  }
}

}  // namespace
}  // namespace heddle
