// SPDX-License-Identifier: Apache-2.0
// Hyperparameters whose value lies in a file: the service takes at most 2500 characters for each.
#pragma once

#include "opt_ml_layout/data_channels.h"
#include "opt_ml_layout/value.h"

namespace opt_ml {

/// The document of hyperparameters.json with each value `@file:CHANNEL/PATH`, JSON quotes around it
/// or not, replaced by the text of that file of that channel, without its last line break; what the
/// text means is decided as for a value that came directly. Text whose CHANNEL is none of the job's
/// stays as it is: it is somebody's own. Throws ConfigError for a file that does not exist, lies
/// outside the channel, or has more than 1 MiB.
Value resolve_file_references(const Value& document, const DataChannels& channels);

}  // namespace opt_ml
