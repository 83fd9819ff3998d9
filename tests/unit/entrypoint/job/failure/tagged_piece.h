// SPDX-License-Identifier: Apache-2.0
// Output of ranks as the supervisor records it.
#pragma once

#include <string_view>

#include "entrypoint/job/failure/output_record.h"
#include "entrypoint/process/rank_tags.h"

namespace entrypoint {

/// Adds a piece as it comes from RankLines: the tag apart from the text.
inline void add(OutputRecord& record, StreamKind kind, std::string_view piece) {
  const auto tag = parse_rank_tag(piece);
  record.add(kind, tag ? &*tag : nullptr, piece.substr(tag ? tag->length : 0));
}

}  // namespace entrypoint
