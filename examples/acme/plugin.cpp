// A plugin with all kinds of offers: a model with an auxiliary loss and a metric, and a parallelizer with its
// own axis, which also changes batches.
//   distributed: {strategy: fsdp2, acme_size: 2}
//   plugins: [build/plugins/libheddle_acme.so]
#include "heddle/sdk.h"
#include "model.h"
#include "parallelizer.h"

HEDDLE_PLUGIN("acme", "0.1.0", "model acme", "parallelizer acme") {
  plugin.model<acme::Family>("acme", acme::keys());
  plugin.parallelizer<acme::Acme>("acme", heddle::ConfigSchema<acme::Config>());
}
