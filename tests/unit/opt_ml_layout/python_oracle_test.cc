// SPDX-License-Identifier: Apache-2.0
// Random documents, each printed by this library and by Python; every text must be the same. Also
// asks Python about every Unicode character.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/utf8.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace opt_ml {
namespace {

using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

constexpr int kDocuments = 3000;

// Prints one line of results for each line of its input, or for each character.
constexpr const char* kOracle = R"(
import json, sys
def texts(line):
    try:
        value = json.loads(line)
    except ValueError:
        return ["not JSON"]
    dumped = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return [dumped, json.dumps(value, indent=3), repr(value), str(value)]
with open(sys.argv[2], "w", encoding="utf-8", errors="surrogatepass", newline="") as out:
    if sys.argv[1] == "characters":
        import unicodedata
        out.write(unicodedata.unidata_version + "\n")
        for code in range(0x110000):
            out.write(f"{code} {chr(code).isprintable():d} {chr(code).upper()}\n")
    else:
        with open(sys.argv[1], "rb") as documents:
            for line in documents.read().split(b"\n")[:-1]:
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError:
                    out.write("not JSON\n")
                    continue
                out.write("\x1e".join(texts(text)) + "\n")
)";

std::string ask_python(const TemporaryFolder& folder, const std::string& argument) {
  const auto script = folder.path() / "oracle.py";
  const auto answers = folder.path() / "answers";
  write_file(script, kOracle);
  const std::string command =
      "python3 '" + script.string() + "' '" + argument + "' '" + answers.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return read_file(answers);
}

class DocumentMaker {
 public:
  explicit DocumentMaker(std::uint64_t seed) : random_(seed) {}

  std::string document() {
    std::string text = value(0);
    // One in five is damaged: both sides must agree on what is no JSON.
    if (below(5) == 0) {
      constexpr std::string_view kDamage = "{}[]\",:\\01.eE+-nN \xC3\xFF";
      text[below(text.size())] = kDamage[below(kDamage.size())];
    }
    std::erase(text, '\n');
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  std::string text() {
    static const char* const kPieces[] = {
        "a",       "Z", "'",    "\\\"", "\\n",          "\\u0000",
        "\\u00a0", "ж", "😀",    "\\\\", "\\ud800",      "\\ud83d\\ude00",
        "\\t",     " ", "\x7F", "é",    "\xE2\x80\xA8", "/"};
    std::string result = "\"";
    for (std::size_t i = below(6); i > 0; --i) result += kPieces[below(std::size(kPieces))];
    return result + "\"";
  }

  std::string number() {
    switch (below(6)) {
      case 0:
        return std::to_string(static_cast<std::int64_t>(random_()));
      case 1: {
        std::string digits(1 + below(60), '0');
        for (char& digit : digits) digit = static_cast<char>('1' + below(9));
        return digits;
      }
      case 2: {
        const std::uint64_t bits = random_();
        double value = 0;
        static_assert(sizeof value == sizeof bits);
        std::memcpy(&value, &bits, sizeof value);
        return python_float(value) == "nan" ? "NaN" : fmt::format("{:.17e}", value);
      }
      case 3:
        return fmt::format("{}.{}e{}", below(1000), below(1000), static_cast<int>(below(60)) - 30);
      case 4:
        return fmt::format("{}.0", random_() >> below(64));
      default:
        return below(2) == 0 ? "-0" : "1E400";
    }
  }

  std::string value(int depth) {
    const std::size_t kind = below(depth > 3 ? 4 : 6);
    if (kind == 0) return text();
    if (kind == 1 || kind == 2) return number();
    if (kind == 3) {
      static const char* const kWords[] = {"null", "true", "false", "NaN", "-Infinity", "True"};
      return kWords[below(std::size(kWords) - (below(20) == 0 ? 0 : 1))];
    }
    std::string result = kind == 4 ? "[" : "{";
    const std::size_t count = below(5);
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) result += below(2) == 0 ? "," : " , ";
      if (kind == 5) result += text() + ":";
      result += value(depth + 1);
    }
    return result + (kind == 4 ? "]" : "}");
  }

  std::mt19937_64 random_;
};

std::string our_texts(const std::string& document) {
  const auto value = try_parse_json(document);
  if (!value) return "not JSON";
  return to_json(*value) + "\x1e" + to_json_indented(*value, 3) + "\x1e" + python_repr(*value) +
         "\x1e" + python_str(*value);
}

TEST(PythonOracle, AgreesOnRandomDocuments) {
  const TemporaryFolder folder;
  DocumentMaker maker(20261121);
  std::string documents;
  std::string ours;
  int valid = 0;
  for (int i = 0; i < kDocuments; ++i) {
    const std::string document = maker.document();
    documents += document + "\n";
    const std::string texts = our_texts(document);
    valid += texts == "not JSON" ? 0 : 1;
    ours += texts + "\n";
  }
  write_file(folder.path() / "documents", documents);

  const std::string theirs = ask_python(folder, folder.path() / "documents");

  EXPECT_GT(valid, kDocuments / 2);
  if (ours == theirs) return;
  const std::size_t at = static_cast<std::size_t>(
      std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end()).first - ours.begin());
  const std::size_t from = at < 200 ? 0 : at - 200;
  FAIL() << "ours:   " << ours.substr(from, 400) << "\ntheirs: " << theirs.substr(from, 400);
}

TEST(PythonOracle, AgreesOnEveryCharacter) {
  const TemporaryFolder folder;
  std::string ours;
  for (char32_t code = 0; code < 0x110000; ++code) {
    ours += fmt::format("{} {:d} ", unsigned{code}, is_printable(code));
    for (const char32_t mapped : upper(code)) append_utf8(ours, mapped);
    ours += '\n';
  }

  const std::string theirs = ask_python(folder, "characters");

  const std::string version = theirs.substr(0, theirs.find('\n'));
  if (version != "14.0.0") GTEST_SKIP() << "python3 has Unicode " << version << ", not 14.0.0";
  ours.insert(0, version + "\n");
  EXPECT_TRUE(ours == theirs) << "run opt_ml_layout/generate_unicode_tables.py with this Python";
}

}  // namespace
}  // namespace opt_ml
