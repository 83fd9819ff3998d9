// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_page.h"

#include <string_view>
#include <utility>

#include "page_files.h"

#include "smp_runtime/core/error.h"

namespace entrypoint::report {
namespace {

/// As in JSON, so that no text can end the element that it stands in.
std::string without_markup(std::string text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string report_page(const nlohmann::json& report) {
  const std::string data = without_markup(
      report.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"@STYLE@", files::page_css},
      {"@DATA@", data},
      {"@CHARTS@", files::charts_js},
      {"@SCRIPT@", files::page_js},
  };
  std::string_view left = files::page_html;
  std::string page;
  for (const auto& [mark, text] : parts) {
    const std::size_t at = left.find(mark);
    SMP_CHECK(at != std::string_view::npos, "the page has no {}", mark);
    page.append(left.substr(0, at)).append(text);
    left.remove_prefix(at + mark.size());
  }
  return page.append(left);
}

}  // namespace entrypoint::report
