// SPDX-License-Identifier: Apache-2.0
// The part of {fmt} that is no template, compiled once: Debian's library of it is a shared one,
// which neither the image nor a wheel would have, and its header-only form is compiled into every
// file.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

#if FMT_VERSION < 100000  // Debian 12's
using FormatArguments = basic_format_args<FMT_BUFFER_CONTEXT(char)>;
#else
using FormatArguments = vformat_args<char>::type;
#endif

// Definitions that the headers declare `extern template` or leave to the library, as far as they
// are used here.
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API locale_ref::locale_ref(const std::locale& locale);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view, FormatArguments, locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
