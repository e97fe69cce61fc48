// The opcodes of CPython's Lib/pickletools.py.
#include "core/io/weights/pickle.h"

#include <bit>
#include <utility>

#include "core/io/weights/pickle_stack.h"

namespace sotto::weights {

namespace {

using Kind = Pickled::Kind;

constexpr std::size_t max_opcodes = 20'000'000;
constexpr std::size_t max_name = 1000;  // bytes of a global's
constexpr std::uint8_t least_protocol = 2;
constexpr std::uint8_t last_protocol = 5;

enum Opcode : std::uint8_t {
  protocol = 0x80,
  frame = 0x95,
  stop = '.',
  mark = '(',
  pop = '0',
  pop_mark = '1',
  duplicate = '2',
  none = 'N',
  new_true = 0x88,
  new_false = 0x89,
  int32 = 'J',
  uint8 = 'K',
  uint16 = 'M',
  long1 = 0x8a,
  long4 = 0x8b,
  float64 = 'G',
  short_string = 'U',
  string = 'T',
  unicode = 'X',
  short_unicode = 0x8c,
  unicode8 = 0x8d,
  short_bytes = 'C',
  bytes = 'B',
  bytes8 = 0x8e,
  bytearray8 = 0x96,
  empty_list = ']',
  append = 'a',
  appends = 'e',
  list = 'l',
  empty_tuple = ')',
  tuple = 't',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  empty_dict = '}',
  dict = 'd',
  set_item = 's',
  set_items = 'u',
  empty_set = 0x8f,
  add_items = 0x90,
  frozenset = 0x91,
  get1 = 'h',
  get4 = 'j',
  put1 = 'q',
  put4 = 'r',
  memoize = 0x94,
  global = 'c',
  stack_global = 0x93,
  instance = 'i',
  reduce = 'R',
  new_object = 0x81,
  build = 'b',
  persistent_id = 'Q',
};

// Reads opcodes; a function for each kind of them returns whether it knows one.
class Machine {
 public:
  Machine(ByteReader& reader, KnownGlobal known)
      : reader_(reader), known_(known), stack_(reader.context()) {}

  Pickle run() {
    check(reader_.number<std::uint8_t>() == protocol, "no pickle of the protocols 2 to 5");
    check_protocol();
    for (std::size_t count = 0;; ++count) {
      check(count < max_opcodes, "more than {} opcodes", max_opcodes);
      const auto opcode = reader_.number<std::uint8_t>();
      if (opcode == stop) break;
      const bool known = push_number(opcode) || push_text(opcode) || push_list(opcode) ||
                         fill(opcode) || use_memo(opcode) || use_stack(opcode) ||
                         use_global(opcode);
      check(known, "the opcode 0x{:02x} at byte {} is not supported", opcode, reader_.place() - 1);
    }
    Pickled* const root = stack_.take();
    return {stack_.release(), root, std::move(persistents_)};
  }

 private:
  template <class... Args>
  void check(bool ok, fmt::format_string<const Args&...> what, const Args&... args) const {
    reader_.context().check(ok, what, args...);
  }

  void check_protocol() {
    const auto number = reader_.number<std::uint8_t>();
    check(number >= least_protocol && number <= last_protocol,
          "the protocol {} of a pickle is not supported, only {} to {}", number, least_protocol,
          last_protocol);
  }

  bool push(Pickled value) {
    stack_.push(std::move(value));
    return true;
  }
  bool push_integer(std::int64_t number) { return push({.kind = Kind::integer, .number = number}); }

  bool push_number(std::uint8_t opcode) {
    switch (opcode) {
      case none: return push(Pickled{});
      case new_true: return push({.kind = Kind::boolean, .number = 1});
      case new_false: return push({.kind = Kind::boolean});
      case int32: return push_integer(reader_.number<std::int32_t>());
      case uint8: return push_integer(reader_.number<std::uint8_t>());
      case uint16: return push_integer(reader_.number<std::uint16_t>());
      case long1: return push_long(reader_.number<std::uint8_t>());
      case long4: return push_long(reader_.number<std::uint32_t>());
      case float64: return push_real();
      default: return false;
    }
  }

  // A number in two's complement, little-endian.
  bool push_long(std::size_t count) {
    const std::string_view digits = reader_.text(count);
    if (count > sizeof(std::int64_t)) return push({Kind::integer, 0, 0, std::string(digits)});
    const bool negative = !digits.empty() && (digits.back() & 0x80) != 0;
    std::uint64_t number = negative ? ~std::uint64_t{0} : 0;
    std::memcpy(&number, digits.data(), digits.size());
    return push_integer(static_cast<std::int64_t>(number));
  }

  bool push_real() {  // big-endian
    const auto bits = reader_.number<std::uint64_t>();
    return push({.kind = Kind::real, .real = std::bit_cast<double>(__builtin_bswap64(bits))});
  }

  bool push_text(std::uint8_t opcode) {
    switch (opcode) {
      case short_string:
      case short_bytes:
      case short_unicode: return push_text_of(reader_.number<std::uint8_t>());
      case string:
      case bytes:
      case unicode: return push_text_of(reader_.number<std::uint32_t>());
      case bytes8:
      case bytearray8:
      case unicode8: return push_text_of(reader_.number<std::uint64_t>());
      default: return false;
    }
  }
  bool push_text_of(std::uint64_t count) {
    return push({.kind = Kind::text, .text = std::string(reader_.text(count))});
  }

  bool push_list(std::uint8_t opcode) {
    switch (opcode) {
      case empty_list:
      case empty_tuple:
      case empty_set: return push({.kind = Kind::list});
      case list:
      case tuple:
      case frozenset: return push({.kind = Kind::list, .items = stack_.take_marked()});
      case tuple1:
      case tuple2:
      case tuple3:
        return push({.kind = Kind::list, .items = stack_.take_last(opcode - tuple1 + 1u)});
      case empty_dict: return push({.kind = Kind::dictionary});
      case dict: return push_dictionary(stack_.take_marked());
      default: return false;
    }
  }
  void check_pairs(const std::vector<Pickled*>& items) const {
    check(items.size() % 2 == 0, "a dictionary has a key without a value");
  }
  bool push_dictionary(std::vector<Pickled*> items) {
    check_pairs(items);
    return push({.kind = Kind::dictionary, .items = std::move(items)});
  }

  bool fill(std::uint8_t opcode) {
    switch (opcode) {
      case append: return add(stack_.take_last(1), Kind::list);
      case appends:
      case add_items: return add(stack_.take_marked(), Kind::list);
      case set_item: return add(stack_.take_last(2), Kind::dictionary);
      case set_items: return add(stack_.take_marked(), Kind::dictionary);
      default: return false;
    }
  }
  bool add(const std::vector<Pickled*>& items, Kind kind) {
    Pickled& target = *stack_.top();
    check(target.is(kind), "items for what is no list or no dictionary");
    if (kind == Kind::dictionary) check_pairs(items);
    target.items.insert(target.items.end(), items.begin(), items.end());
    return true;
  }

  bool use_memo(std::uint8_t opcode) {
    switch (opcode) {
      case get1: stack_.recall(reader_.number<std::uint8_t>()); return true;
      case get4: stack_.recall(reader_.number<std::uint32_t>()); return true;
      case put1: stack_.keep(reader_.number<std::uint8_t>()); return true;
      case put4: stack_.keep(reader_.number<std::uint32_t>()); return true;
      case memoize: stack_.keep_next(); return true;
      default: return false;
    }
  }

  bool use_stack(std::uint8_t opcode) {
    switch (opcode) {
      case protocol: check_protocol(); return true;
      case frame: reader_.number<std::uint64_t>(); return true;
      case mark: return push({.kind = Kind::mark});
      case pop: stack_.take(); return true;
      case pop_mark: stack_.take_marked(); return true;
      case duplicate: stack_.duplicate(); return true;
      case persistent_id:
        push({.kind = Kind::persistent, .items = stack_.take_last(1)});
        persistents_.push_back(stack_.top());
        return true;
      default: return false;
    }
  }

  bool use_global(std::uint8_t opcode) {
    switch (opcode) {
      case global:
      case instance: return push_global(opcode, line());
      case stack_global: {
        const std::vector<Pickled*> names = stack_.take_last(2);
        check(names[0]->is(Kind::text) && names[1]->is(Kind::text), "a global's name is no text");
        return push_global(opcode, names[0]->text + "." + names[1]->text);
      }
      case reduce:
      case new_object: return call();
      case build: return set_state();
      default: return false;
    }
  }

  // An OrderedDict of PyTorch has the versions of modules as its state, a parameter of its first
  // versions whether it has a gradient.
  bool set_state() {
    stack_.take();
    check(stack_.top()->is(Kind::dictionary) || stack_.top()->calls("torch.nn.parameter.Parameter"),
          "a state for {}, which has none", excerpt(stack_.top()->text));
    return true;
  }

  // Two lines: a module, and a name in it.
  std::string line() {
    std::string name;
    for (const char end : {'.', '\0'}) {
      for (char c = 0; (c = reader_.number<char>()) != '\n'; name += c) {
        check(name.size() < max_name, "the name of a global has more than {} bytes", max_name);
      }
      if (end != '\0') name += end;
    }
    return name;
  }

  bool push_global(std::uint8_t opcode, std::string name) {
    check(known_(name) && opcode != instance,
          "the pickle asks for {}, which is not run: only tensors and dictionaries are read",
          excerpt(name));
    return push({.kind = Kind::global, .text = std::move(name)});
  }

  bool call() {
    std::vector<Pickled*> operands = stack_.take_last(2);
    check(operands[0]->is(Kind::global) && operands[1]->is(Kind::list),
          "a call of what is no global, or without a tuple of arguments");
    const std::string& name = operands[0]->text;
    const std::vector<Pickled*>& arguments = operands[1]->items;
    if (name == "collections.OrderedDict") return push_ordered(arguments);
    if (name == "torch.Size") {
      check(arguments.size() == 1 && arguments[0]->is(Kind::list), "torch.Size without a tuple");
      return push({.kind = Kind::list, .items = arguments[0]->items});
    }
    return push({.kind = Kind::object, .text = name, .items = arguments});
  }
  // Without arguments, or of a list of pairs.
  bool push_ordered(const std::vector<Pickled*>& arguments) {
    check(arguments.size() <= 1, "an OrderedDict of {} arguments", arguments.size());
    Pickled made{.kind = Kind::dictionary};
    for (const Pickled* pairs : arguments) {
      for (const Pickled* pair : pairs->items) {
        check(pair->is(Kind::list) && pair->items.size() == 2, "an OrderedDict of no pairs");
        made.items.insert(made.items.end(), pair->items.begin(), pair->items.end());
      }
    }
    return push(std::move(made));
  }

  ByteReader& reader_;
  KnownGlobal known_;
  PickleStack stack_;
  std::vector<const Pickled*> persistents_;
};

}  // namespace

Pickle read_pickle(ByteReader& reader, KnownGlobal known) { return Machine(reader, known).run(); }

}  // namespace sotto::weights
