// Detection of checkpoints of another model by signature.
#include <gtest/gtest.h>

#include <string>

#include "lib/run/spec/settings.h"
#include "run/outputs/output_run.h"

namespace heddle {
namespace {

// A later version may add a key to a family's signature.
TEST(ChangedModel, IgnoresASignatureWithoutANewKeyIfTheConfigurationIsEqual) {
  const tests::OutputRun files;
  const RunSpec run = files.prepared();
  Position there;
  there.model = run.model.spec->signature();
  there.settings = run.settings;
  EXPECT_EQ(changed_model(there, run), "");
  const std::string size = there.model.at("intermediate_size");
  there.model.erase("intermediate_size");
  EXPECT_EQ(changed_model(there, run), "");
  there.settings["model.config.intermediate_size"] = "40";
  EXPECT_EQ(changed_model(there, run), "intermediate_size was not recorded, now " + size);
  there.model["intermediate_size"] = "40";
  EXPECT_EQ(changed_model(there, run), "intermediate_size was 40, now " + size);
  there.model = run.model.spec->signature();
  there.model["more"] = "1";
  EXPECT_EQ(changed_model(there, run), "more was 1, now it is not set");
}

}  // namespace
}  // namespace heddle
