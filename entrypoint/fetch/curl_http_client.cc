// SPDX-License-Identifier: Apache-2.0
// HttpClient with libcurl, which also signs requests.

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include <curl/curl.h>
#include <fmt/format.h>

#include "entrypoint/fetch/http_client.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint::fetch {
namespace {

constexpr std::size_t kBodyLimit = 1024 * 1024;
// A transfer that stands still this long is given up, and tried again by the caller.
constexpr long kStallSeconds = 60;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

File open_file(const std::filesystem::path& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  if (!file) throw smp::HostError("{}: {}", path.string(), std::strerror(errno));
  return file;
}

std::string in_lower_case(std::string_view mixed) {
  std::string text(mixed);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// State of one request, filled by callbacks.
struct Exchange {
  CURL* handle = nullptr;
  HttpResponse response;
  std::FILE* file = nullptr;
  std::int64_t room = 0;  ///< bytes that may still be written
  int file_error = 0;
};

std::size_t take_body(char* data, std::size_t, std::size_t count, void* where) {
  auto& exchange = *static_cast<Exchange*>(where);
  long status = 0;
  curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &status);
  if (exchange.file != nullptr && status >= 200 && status < 300) {
    exchange.room -= static_cast<std::int64_t>(count);
    if (exchange.room < 0) return 0;  // which ends the transfer
    const std::size_t written = std::fwrite(data, 1, count, exchange.file);
    if (written != count) exchange.file_error = errno;
    return written;
  }
  if (exchange.response.body.size() < kBodyLimit) exchange.response.body.append(data, count);
  return count;
}

std::size_t take_header(char* data, std::size_t, std::size_t count, void* where) {
  auto& exchange = *static_cast<Exchange*>(where);
  const std::string_view line(data, count);
  if (line.starts_with("HTTP/")) exchange.response.headers.clear();  // after "100 Continue"
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return count;
  exchange.response.headers[in_lower_case(line.substr(0, colon))] =
      smp::trimmed(line.substr(colon + 1));
  return count;
}

/// Returns true where libcurl, left to itself, would send another path. A newer one (8.14; 7.88
/// does it) refuses to sign a path as it is: asked only where a key needs that, and its error says
/// so.
bool has_dot_segment(std::string_view url) {
  const std::vector<std::string> segments = smp::split(url.substr(0, url.find('?')), '/');
  return std::ranges::any_of(segments, [](const std::string& segment) {
    return segment == "." || segment == "..";  // dots of keys are never sent as %2E
  });
}

void set_signature(CURL* handle, const Signature& signature) {
  const std::string scope = "aws:amz:" + signature.region + ":" + signature.service;
  curl_easy_setopt(handle, CURLOPT_AWS_SIGV4, scope.c_str());
  curl_easy_setopt(handle, CURLOPT_USERNAME, signature.credentials.access_key.c_str());
  curl_easy_setopt(handle, CURLOPT_PASSWORD, signature.credentials.secret_key.c_str());
}

/// One connection is kept open between calls.
class CurlHttpClient final : public HttpClient {
 public:
  explicit CurlHttpClient(std::string ca_bundle) : ca_bundle_(std::move(ca_bundle)) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    handle_ = curl_easy_init();
    if (handle_ == nullptr) throw smp::HostError("libcurl cannot be initialised");
  }
  ~CurlHttpClient() override {
    curl_easy_cleanup(handle_);
    curl_global_cleanup();
  }
  CurlHttpClient(const CurlHttpClient&) = delete;
  CurlHttpClient& operator=(const CurlHttpClient&) = delete;

  HttpResponse send(const HttpRequest& request) override;

 private:
  CURL* handle_ = nullptr;
  std::string ca_bundle_;
};

HttpResponse CurlHttpClient::send(const HttpRequest& request) {
  curl_easy_reset(handle_);  // options only: the connection stays
  Exchange exchange{.handle = handle_};
  File sink;
  File source;
  if (!request.to_file.empty()) {
    sink = open_file(request.to_file, "wb");
    exchange.file = sink.get();
    exchange.room = request.most_bytes;
  }
  std::array<char, CURL_ERROR_SIZE> reason{};
  curl_easy_setopt(handle_, CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(handle_, CURLOPT_URL, request.url.c_str());
  // No answer leads to another protocol or another host.
  curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle_, CURLOPT_FOLLOWLOCATION, 0L);
  // Keys may hold "..", and are signed as sent.
  if (has_dot_segment(request.url)) curl_easy_setopt(handle_, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(request.connect_limit.count()));
  curl_easy_setopt(handle_, CURLOPT_TIMEOUT_MS, static_cast<long>(request.limit.count()));
  curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(handle_, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(handle_, CURLOPT_HEADERDATA, &exchange);
  if (!ca_bundle_.empty()) curl_easy_setopt(handle_, CURLOPT_CAINFO, ca_bundle_.c_str());
  if (request.direct) curl_easy_setopt(handle_, CURLOPT_NOPROXY, "*");

  std::vector<std::string> headers = request.headers;
  if (request.method == "PUT") {
    curl_easy_setopt(handle_, CURLOPT_UPLOAD, 1L);
    curl_off_t size = 0;
    if (!request.from_file.empty()) {
      source = open_file(request.from_file, "rb");
      if (fseeko(source.get(), request.from_offset, SEEK_SET) != 0) {
        throw smp::HostError("{}: {}", request.from_file.string(), std::strerror(errno));
      }
      const auto left = static_cast<std::int64_t>(std::filesystem::file_size(request.from_file)) -
                        request.from_offset;
      size = std::min(left, request.from_bytes);
      curl_easy_setopt(handle_, CURLOPT_READDATA, source.get());
    }
    // No header "Expect:", which would keep libcurl from asking whether to go on with more than a
    // MiB: 7.88 signs it and does not send it, and S3 refuses the signature.
    curl_easy_setopt(handle_, CURLOPT_INFILESIZE_LARGE, size);
  } else if (request.method == "POST") {
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDS, request.body.c_str());
  } else if (request.method == "DELETE") {
    curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, "DELETE");
  }
  if (request.signature) {
    set_signature(handle_, *request.signature);
    const std::string& token = request.signature->credentials.session_token;
    if (!token.empty()) headers.push_back("X-Amz-Security-Token: " + token);
  }
  std::unique_ptr<curl_slist, FreeList> list;
  for (const std::string& header : headers) {
    curl_slist* const longer = curl_slist_append(list.get(), header.c_str());
    static_cast<void>(list.release());
    list.reset(longer);
  }
  curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, list.get());

  const CURLcode code = curl_easy_perform(handle_);
  if (exchange.file_error == 0 && sink && std::fflush(sink.get()) != 0) exchange.file_error = errno;
  if (exchange.file_error != 0) {
    throw smp::HostError("{}: {}", request.to_file.string(), std::strerror(exchange.file_error));
  }
  if (exchange.room < 0) throw TooLarge(fmt::format("more than {} bytes", request.most_bytes));
  if (code != CURLE_OK) {
    throw NoAnswer(reason[0] != '\0' ? reason.data() : curl_easy_strerror(code));
  }
  long status = 0;
  curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
  exchange.response.status = static_cast<int>(status);
  return std::move(exchange.response);
}

/// None where the URL has no such part.
std::optional<std::string> part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return std::nullopt;
  std::string result = text;
  curl_free(text);
  return result;
}

}  // namespace

std::optional<UrlTarget> parse_url(const std::string& url) {
  struct Cleanup {
    void operator()(CURLU* handle) const { curl_url_cleanup(handle); }
  };
  const std::unique_ptr<CURLU, Cleanup> parsed(curl_url());
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return std::nullopt;
  }
  return UrlTarget{.scheme = in_lower_case(part_of(parsed.get(), CURLUPART_SCHEME).value_or("")),
                   .host = in_lower_case(part_of(parsed.get(), CURLUPART_HOST).value_or("")),
                   .has_user = part_of(parsed.get(), CURLUPART_USER).has_value() ||
                               part_of(parsed.get(), CURLUPART_PASSWORD).has_value()};
}

std::unique_ptr<HttpClient> make_curl_client(std::string ca_bundle) {
  return std::make_unique<CurlHttpClient>(std::move(ca_bundle));
}

}  // namespace entrypoint::fetch
