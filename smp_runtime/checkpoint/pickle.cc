// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "smp_runtime/checkpoint/pickle_calls.h"

namespace smp::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little);  // as numbers of pickles are

constexpr int kDeepest = 500;  // destructors of nested objects call each other

enum Opcode : unsigned char {
  kProtocol = 0x80,
  kStop = '.',
  kMark = '(',
  kNone = 'N',
  kTrue = 0x88,
  kFalse = 0x89,
  kInt1 = 'K',
  kInt2 = 'M',
  kInt4 = 'J',
  kLong = 0x8a,
  kDouble = 'G',
  kText = 'X',
  kEmptyTuple = ')',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTuple = 't',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kPut = 'q',
  kLongPut = 'r',
  kGet = 'h',
  kLongGet = 'j',
  kName = 'c',
  kCall = 'R',
  kSetAttributes = 'b',
  kStorage = 'Q',
};

class PickleReader {
 public:
  PickleReader(std::string_view pickle, const RecordBytes& bytes_of)
      : rest_(pickle), bytes_of_(bytes_of) {}

  PickledObject read() {
    if (number<Opcode>() != kProtocol || number<std::uint8_t>() != 2) {
      refuse_pickle("its pickle is not of protocol 2, which torch.save writes");
    }
    for (Opcode opcode = number<Opcode>(); opcode != kStop; opcode = number<Opcode>()) {
      step(opcode);
    }
    Objects last = pop(1);
    if (!stack_.empty() || !marks_.empty()) refuse_pickle("its pickle ends before its object does");
    check_value(*last[0]);
    return last[0];
  }

 private:
  using Object = std::shared_ptr<Pickled>;
  using Objects = std::vector<Object>;

  void step(Opcode opcode) {
    switch (opcode) {
      case kMark:
        return marks_.push_back(stack_.size());
      case kNone:
        return push(std::monostate());
      case kTrue:
        return push(true);
      case kFalse:
        return push(false);
      case kInt1:
        return push(std::int64_t{number<std::uint8_t>()});
      case kInt2:
        return push(std::int64_t{number<std::uint16_t>()});
      case kInt4:
        return push(std::int64_t{number<std::int32_t>()});
      case kLong:
        return push(long_number());
      case kDouble:
        return push(std::bit_cast<double>(__builtin_bswap64(number<std::uint64_t>())));
      case kText:
        return push(std::string(take(number<std::uint32_t>())));
      case kEmptyTuple:
        return push(PickledTuple());
      case kTuple1:
        return push(tuple(pop(1)));
      case kTuple2:
        return push(tuple(pop(2)));
      case kTuple3:
        return push(tuple(pop(3)));
      case kTuple:
        return push(tuple(pop_marked()));
      case kEmptyList:
        return push(PickledList());
      case kAppend:
        return append(pop(1));
      case kAppends:
        return append(pop_marked());
      case kEmptyDict:
        return push(PickledDict());
      case kSetItem:
        return set(pop(2));
      case kSetItems:
        return set(pop_marked());
      case kPut:
        return put(number<std::uint8_t>());
      case kLongPut:
        return put(number<std::uint32_t>());
      case kGet:
        return get(number<std::uint8_t>());
      case kLongGet:
        return get(number<std::uint32_t>());
      case kName:
        return push_name();
      case kCall: {
        const Objects call = pop(2);
        return push(called(value_as<PickledName>(*call[0]).text, value_as<PickledTuple>(*call[1])));
      }
      case kSetAttributes:  // such as _metadata of a state dict, which says nothing of its values
        pop(1);
        value_as<PickledDict>(*top());
        return;
      case kStorage:
        return push(referred_storage(value_as<PickledTuple>(*pop(1)[0]), bytes_of_));
      default:
        refuse_pickle("its pickle has the unknown opcode {:#x}; save it with pickle_protocol=2",
                      static_cast<int>(opcode));
    }
  }

  // --- Bytes ---

  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) refuse_pickle("its pickle is cut off");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  template <typename Number>
  Number number() {
    Number value{};
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }

  std::int64_t long_number() {
    const std::string_view bytes = take(number<std::uint8_t>());
    std::int64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? -1 : 0;  // its sign
    if (bytes.size() > sizeof(value)) refuse_pickle("it holds a whole number of more than 64 bits");
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  std::string_view line() {
    const std::string_view text = take(std::min(rest_.find('\n'), rest_.size()));
    take(1);
    return text;
  }

  // --- The stack ---

  void push(PickledValue value) {
    int depth = 0;
    if (std::holds_alternative<PickledDict>(value)) depth = 1;  // a new one
    const auto look_into = [&](const auto* list) {
      if (list == nullptr) return;
      depth = 1;
      for (const PickledObject& item : list->items) depth = std::max(depth, item->depth + 1);
    };
    look_into(std::get_if<PickledList>(&value));
    look_into(std::get_if<PickledTuple>(&value));
    check_depth(depth);
    stack_.push_back(std::make_shared<Pickled>(Pickled{std::move(value), depth}));
  }

  static void check_depth(int depth) {
    if (depth > kDeepest) refuse_pickle("its lists are nested more than {} times", kDeepest);
  }

  static PickledTuple tuple(const Objects& items) { return {{items.begin(), items.end()}}; }

  const Object& top() const {
    if (stack_.size() <= base()) refuse_pickle("its pickle takes more objects than it has");
    return stack_.back();
  }

  std::size_t base() const { return marks_.empty() ? 0 : marks_.back(); }

  Objects pop(std::size_t count) {
    if (stack_.size() - base() < count) refuse_pickle("its pickle takes more objects than it has");
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    Objects objects(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    return objects;
  }

  Objects pop_marked() {
    if (marks_.empty()) refuse_pickle("its pickle ends a list that it did not begin");
    Objects objects = pop(stack_.size() - base());
    marks_.pop_back();
    return objects;
  }

  /// What is kept stays kept, so that `unfinished` can count on it.
  void put(std::uint32_t number) {
    if (!memo_.emplace(number, top()).second)
      refuse_pickle("its pickle keeps two objects as one number");
  }

  void get(std::uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) refuse_pickle("its pickle takes an object that it did not keep");
    stack_.push_back(found->second);
  }

  // --- Objects ---

  /// The list or dictionary on top, to be changed. Only the stack and the memo may know it yet: its
  /// depth is final where it is part of something, and so it cannot be made part of itself.
  template <typename Value>
  Value& unfinished(const Objects& added) {
    value_as<Value>(*top());
    Pickled& object = *stack_.back();
    if (stack_.back().use_count() > 2) {
      refuse_pickle("its pickle changes a list that is part of another, or of itself");
    }
    for (const Object& one : added) {
      check_value(*one);
      object.depth = std::max(object.depth, one->depth + 1);
    }
    check_depth(object.depth);
    return std::get<Value>(object.value);
  }

  static void check_value(const Pickled& object) {
    if (const auto* name = std::get_if<PickledName>(&object.value)) refuse_name(name->text);
    if (std::holds_alternative<PickledStorage>(object.value))
      refuse_pickle("it holds a bare storage");
  }

  static void check_key(const PickledValue& key) {
    const bool fits =
        std::holds_alternative<std::string>(key) || std::holds_alternative<bool>(key) ||
        std::holds_alternative<std::int64_t>(key) || std::holds_alternative<double>(key);
    if (!fits) refuse_pickle("a dictionary has a key that is neither a number nor a text");
  }

  void append(const Objects& items) {
    auto& list = unfinished<PickledList>(items);
    if (list.kind != PickledList::Kind::kAny)
      refuse_pickle("its pickle adds to a list of one kind");
    list.items.insert(list.items.end(), items.begin(), items.end());
  }

  void set(const Objects& items) {
    if (items.size() % 2 != 0) refuse_pickle("its pickle has a key without a value");
    auto& entries = unfinished<PickledDict>(items).items;
    for (std::size_t at = 0; at < items.size(); at += 2) {
      check_key(items[at]->value);
      entries.emplace_back(items[at], items[at + 1]);
    }
  }

  void push_name() {
    const std::string_view module = line();
    std::string name = fmt::format("{}.{}", module, line());
    check_name(name);
    push(PickledName{std::move(name)});
  }

  std::string_view rest_;
  const RecordBytes& bytes_of_;
  Objects stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, Object> memo_;
};

}  // namespace

PickledObject read_pickle(std::string_view pickle, const RecordBytes& bytes_of) {
  return PickleReader(pickle, bytes_of).read();
}

}  // namespace smp::checkpoint
