// Pickles of Python: the values that one describes, without running anything.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/weights/byte_reader.h"

namespace sotto::weights {

// A value of a pickle.
struct Pickled {
  enum class Kind {
    none,
    boolean,     // number: 0 or 1
    integer,     // number; text: its bytes where they are more than eight
    real,        // real
    text,        // text: of strings and of bytes
    list,        // items; tuples and sets, too
    dictionary,  // items: a key, its value, the next key, ...
    global,      // text: "torch.FloatStorage"
    object,      // text: the global that was called; items: the arguments
    persistent,  // items: the one value by which it is known outside of the pickle
    mark,        // of the machine's own
  };
  Kind kind = Kind::none;
  std::int64_t number = 0;
  double real = 0;
  std::string text = {};
  std::vector<Pickled*> items = {};

  bool is(Kind other) const { return kind == other; }
  bool calls(std::string_view global) const { return kind == Kind::object && text == global; }
};

// The values of a pickle. They may refer to themselves: a walk needs a limit.
struct Pickle {
  std::deque<Pickled> values;
  Pickled* root = nullptr;
  std::vector<const Pickled*> persistents;
};

// Globals that a pickle may name, as "collections.OrderedDict".
using KnownGlobal = bool (*)(std::string_view name);

// Reads a pickle of the protocols 2 to 5. Calls of collections.OrderedDict give dictionaries, those
// of torch.Size lists. Throws std::invalid_argument, with its name, for a global that is not known,
// and for opcodes that build other objects.
Pickle read_pickle(ByteReader& reader, KnownGlobal known);

}  // namespace sotto::weights
