// SPDX-License-Identifier: Apache-2.0
// The functions of libcurl that the module calls, to link against: Debian's library gives them a
// symbol version that other distributions' libcurl.so.4 does not have. Never loaded.
#define FUNCTION(name) \
  void name(void) {}
FUNCTION(curl_easy_cleanup)
FUNCTION(curl_easy_getinfo)
FUNCTION(curl_easy_init)
FUNCTION(curl_easy_perform)
FUNCTION(curl_easy_reset)
FUNCTION(curl_easy_setopt)
FUNCTION(curl_easy_strerror)
FUNCTION(curl_free)
FUNCTION(curl_global_cleanup)
FUNCTION(curl_global_init)
FUNCTION(curl_slist_append)
FUNCTION(curl_slist_free_all)
FUNCTION(curl_url)
FUNCTION(curl_url_cleanup)
FUNCTION(curl_url_get)
FUNCTION(curl_url_set)
